package jsstream

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/stored"
)

// The server's final refusals are not taken for its absence.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct{ err, want error }{
		{nats.ErrMaxPayload, stored.ErrTooLarge},
		{fmt.Errorf("put: %w", nats.ErrMaxPayload), stored.ErrTooLarge},
		{&jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamMessageExceedsMaximum}, stored.ErrTooLarge},
		{&jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}, stored.ErrConflict},
		{&jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant}, stored.ErrConflict},
		{jetstream.ErrKeyExists, stored.ErrConflict},
		{nats.ErrTimeout, stored.ErrUnavailable},
	} {
		err := WriteError(&nats.Msg{Subject: "s"}, tt.err)
		require.ErrorIs(t, err, tt.want, tt.err)
		require.ErrorIs(t, err, tt.err)
	}
}
