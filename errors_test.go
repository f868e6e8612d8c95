package jetpull_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// Every status that nats-server 2.15 sends to a pull, and what a call says of it. It
// ends the call, or what stood in the way last is told at the deadline.
func TestEveryStatus(t *testing.T) {
	for _, tt := range []struct {
		code int
		text string
		ends bool // at once
		is   []error
		says string
	}{
		{400, "Bad Request - Priority Group missing", true, []error{jetpull.ErrBadRequest, jetstream.ErrBadRequest}, ""},
		{408, "Interest Expired", false, []error{jetpull.ErrTimeout, nats.ErrTimeout}, ""},
		{409, "Message Size Exceeds MaxBytes", true, []error{jetpull.ErrMaxBytes, jetstream.ErrMaxBytesExceeded}, "raise MaxBytes"},
		{409, "Exceeded MaxRequestExpires of 1s", true, []error{jetpull.ErrLimitExceeded}, "raise the limit"},
		{409, "Exceeded MaxRequestMaxBytes of 100", true, []error{jetpull.ErrLimitExceeded}, ""},
		{409, "Exceeded MaxWaiting", false, []error{jetpull.ErrMaxWaiting, jetpull.ErrTimeout}, "MaxWaiting"},
		{409, "Consumer Deleted", true, []error{jetpull.ErrConsumerDeleted, jetstream.ErrConsumerDeleted, nats.ErrConsumerDeleted}, ""},
		{409, "consumer deleted", true, []error{jetpull.ErrConsumerDeleted}, ""},
		{409, "Consumer is push based", true, []error{jetpull.ErrNotPull, jetstream.ErrNotPullConsumer, nats.ErrPullSubscribeToPushConsumer}, "DeliverSubject"},
		{409, "Leadership Change", false, []error{jetpull.ErrLeadershipChanged, jetstream.ErrConsumerLeadershipChanged, nats.ErrConsumerLeadershipChanged}, ""},
		{409, "Server Shutdown", false, []error{jetpull.ErrServerShutdown, jetstream.ErrServerShutdown}, ""},
		{409, "Something Else", false, []error{jetpull.ErrTimeout}, ""},
		{412, "Required Api Level", true, []error{jetpull.ErrBadRequest}, ""},
		{499, "Newer", false, []error{jetpull.ErrTimeout}, ""},
		{503, "", false, []error{jetpull.ErrNoResponders, nats.ErrNoResponders, jetpull.ErrTimeout}, ""},
	} {
		t.Run(fmt.Sprint(tt.code, " ", tt.text), at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.answer(tt.code, tt.text)
			r := <-w.fetch(t.Context(), 3, jetpull.MaxWait(3*time.Second), jetpull.MaxBytes(100))
			require.Equal(t, tt.ends, r.at == 0, "%v", r.at)
			for _, is := range tt.is {
				require.ErrorIs(t, r.err, is)
			}
			require.ErrorContains(t, r.err, tt.says)
			status, ok := errors.AsType[*jetpull.StatusError](r.err)
			require.True(t, ok || tt.code == 408, "%v", r.err)
			if ok {
				require.Equal(t, &jetpull.StatusError{Code: tt.code, Description: tt.text, Subject: "$JS.API.CONSUMER.MSG.NEXT.S.C"}, &jetpull.StatusError{Code: status.Code, Description: status.Description, Subject: status.Subject})
				require.ErrorContains(t, r.err, fmt.Sprintf("status %d", tt.code))
				require.ErrorContains(t, r.err, status.Subject)
			}
		}))
	}
}

// The sentinels stand for different conditions and match neither each other nor
// each other's of nats.go.
func TestSentinelsAreDistinct(t *testing.T) {
	all := map[error][]error{
		jetpull.ErrTimeout: {nats.ErrTimeout}, jetpull.ErrNoMessages: {jetstream.ErrNoMessages}, jetpull.ErrNoResponders: {nats.ErrNoResponders},
		jetpull.ErrConsumerDeleted: {jetstream.ErrConsumerDeleted, nats.ErrConsumerDeleted}, jetpull.ErrNotPull: {jetstream.ErrNotPullConsumer},
		jetpull.ErrBadRequest: {jetstream.ErrBadRequest}, jetpull.ErrLimitExceeded: nil, jetpull.ErrMaxWaiting: nil, jetpull.ErrMaxBytes: {jetstream.ErrMaxBytesExceeded},
		jetpull.ErrPinMismatch: {jetstream.ErrPinIDMismatch}, jetpull.ErrLeadershipChanged: {jetstream.ErrConsumerLeadershipChanged},
		jetpull.ErrServerShutdown: {jetstream.ErrServerShutdown}, jetpull.ErrInvalidOption: {jetstream.ErrInvalidOption}, jetpull.ErrClosed: nil,
		jetpull.ErrDrainTimeout: {nats.ErrDrainTimeout},
	}
	for a := range all {
		require.ErrorContains(t, a, "jetpull: ")
		for b, also := range all {
			for _, is := range append(also, b) {
				require.Equal(t, a == b, errors.Is(fmt.Errorf("x: %w", a), is), "%v is %v", a, is)
			}
		}
	}
}
