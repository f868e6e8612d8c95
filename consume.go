package jetpull

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Handler handles one message. Its result settles the message: nil acknowledges it, an error has it handled
// again (see [RetryDelays]), [Retry] sets the delay, and [Terminate] ends it for good. A message that the handler
// has settled itself is left alone. A handler that passes its message to another goroutine must not return before
// that is done with it, or needs [ManualAck]. A panic is recovered, reported, and counts as an error.
//
// Its context carries the values of Consume's and outlives it: it is cancelled only when the handler has not
// returned DrainTimeout after the end of Consume's; see also [HandlerTimeout].
type Handler func(ctx context.Context, m *Msg) error

// Consume runs h for each message until ctx ends or the consumer is gone. It reads ahead, keeps messages in progress
// that take long, and pulls again by itself after whatever may happen to connection and server. A consumer with ack
// policy all is refused with [ErrInvalidOption]: create it with the explicit policy, or use Messages or Fetch.
//
// When ctx ends, pulling ends first, messages that no handler has got are handed back to the server at once, and
// running handlers go on for [DrainTimeout]; then their context is cancelled. It returns nil after that, or
// [ErrDrainTimeout] if handlers had to be cancelled, DrainTimeout and a second after the end of ctx at the latest. It
// returns [ErrConsumerDeleted], [ErrClosed] or a [StatusError] that no retry can mend when it ends by itself, and
// [ErrInvalidOption] before it begins. With [DeadLetter] it asks for the subject's stream first, for 5 s at most,
// which ctx ends and Close does not.
func (s *Subscription) Consume(ctx context.Context, h Handler, opts ...Option) error {
	if h == nil {
		return invalid("handler", "is nil; give the function that handles a message")
	}
	if ctx != nil && ctx.Err() != nil {
		_, err := s.settings(context.WithoutCancel(ctx), callConsume, opts)
		return err
	}
	set, err := s.settings(ctx, callConsume, opts)
	if err != nil {
		return err
	}
	if err := s.checkDeadLetter(ctx, set); err != nil {
		return err
	}
	defer s.hook(set)()
	r := s.open(callConsume, set, h)
	r.report.Log().Info("jetpull: consuming", "concurrency", set.streaming.concurrency)
	drained := r.pool.Run(ctx)
	r.close(min(closeMost, r.pool.Left()))
	r.report.Log().Info("jetpull: consuming ended")
	if drained != nil {
		drained = fmt.Errorf("%w: %w", ErrDrainTimeout, drained)
	}
	if err := r.pool.Err(); err != nil {
		return errors.Join(s.wrapError("consume", err), drained)
	}
	return drained
}

// Retry is the result of a handler whose message is to be handled again after the given time, at once if that
// is 0 or less, and after a year at the latest, unless it has had [MaxAttempts]. err says why and may be nil.
func Retry(after time.Duration, err error) error { return &retryError{min(after, maxWait), err} }

// Terminate is the result of a handler whose message is never to be delivered again. The reason goes to the server's
// advisory, in one line of at most 1,024 bytes; it makes no dead letter. err says why and may be nil.
func Terminate(reason string, err error) error { return &terminateError{reason, err} }

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("jetpull: retry after %v", e.after)
	}
	return fmt.Sprintf("jetpull: retry after %v: %v", e.after, e.err)
}

func (e *retryError) Unwrap() error { return e.err }

type terminateError struct {
	reason string
	err    error
}

func (e *terminateError) Error() string {
	if e.err == nil {
		return "jetpull: terminate: " + e.reason
	}
	return fmt.Sprintf("jetpull: terminate: %s: %v", e.reason, e.err)
}

func (e *terminateError) Unwrap() error { return e.err }
