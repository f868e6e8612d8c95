package jsstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/stored"
)

// Write stores a message and returns its sequence. With [jetstream.WithExpectLastSequencePerSubject] it is a compare-and-swap.
//
// If the error is [stored.ErrConflict] (the last sequence differs), [stored.ErrTooLarge], or another [jetstream.APIError], the message is not stored.
// Any other error is [stored.ErrUnavailable], and the message may be stored.
func Write(ctx context.Context, js jetstream.JetStream, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	ack, err := js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return 0, WriteError(m, err)
	}
	return ack.Sequence, nil
}

// BeginWrite starts to store a message, after those of earlier calls. written waits for the result, as returned by [Write].
func BeginWrite(js jetstream.JetStream, m *nats.Msg, opts ...jetstream.PublishOpt) (written func(context.Context) (uint64, error)) {
	future, err := js.PublishMsgAsync(m, opts...)
	if err != nil {
		return func(context.Context) (uint64, error) { return 0, WriteError(m, err) }
	}
	return func(ctx context.Context) (uint64, error) {
		select {
		case ack := <-future.Ok():
			return ack.Sequence, nil
		case err := <-future.Err():
			return 0, WriteError(m, err)
		case <-ctx.Done():
			return 0, WriteError(m, context.Cause(ctx))
		}
	}
}

// WriteError converts an error of package jetstream for a message to store. See [Write].
func WriteError(m *nats.Msg, err error) error {
	kind := stored.ErrUnavailable
	switch code := codeOf(err); {
	case errors.Is(err, jetstream.ErrKeyExists), Refused(err):
		kind = stored.ErrConflict
	case errors.Is(err, nats.ErrMaxPayload), code == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %d bytes for %s are more than the server accepts: %w", stored.ErrTooLarge, len(m.Data), m.Subject, err)
	}
	return fmt.Errorf("%w: publish to %s: %w", kind, m.Subject, err)
}

// Refused reports whether the server refused a write because of the expected last sequence of the stream or the subject.
func Refused(err error) bool {
	return codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequence || UnderWay(err)
}

// UnderWay reports whether the server refused a write because its leader is replicating another write to the subject, perhaps an earlier attempt at
// this one. Which of them is stored is known when it has a majority, or when the leader has changed.
func UnderWay(err error) bool {
	return codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}
