package jetpull

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Consume runs h for each message until ctx ends or the consumer is gone. It reads ahead, keeps slow messages in
// progress, and pulls again by itself after failures of the connection and the server. A consumer with ack policy all
// is refused with [ErrInvalidOption]: create it with the explicit policy, or use Messages or Fetch.
//
// When ctx ends, pulling stops first, messages that no handler has started are handed back to the server at once, and
// running handlers go on for [DrainTimeout]; then their context is cancelled. Consume returns nil after that, or
// [ErrDrainTimeout] if handlers had to be cancelled, at most DrainTimeout and a second after the end of ctx. If it ends
// by itself it returns [ErrConsumerDeleted], [ErrClosed] or a [StatusError] that no retry can resolve, and before it
// begins [ErrInvalidOption]. With [DeadLetter] it looks up the subject's stream first, for 5 s at most, and needs the permission for
// STREAM.NAMES; the end of ctx stops that, Close does not. If the server refuses acknowledgements, Consume ends with an error that
// matches [nats.ErrPermissionViolation], before any of them is redelivered.
func (s *Subscription) Consume(ctx context.Context, h Handler, opts ...ConsumeOption) error {
	if h == nil {
		return invalid("handler", "is nil; give the function that handles a message")
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	set, err := s.settings(context.WithoutCancel(ctx), callConsume, given(opts)) // a context that has ended is no error
	if err != nil || ctx.Err() != nil {
		return err
	}
	for _, use := range slices.Backward(set.run.use) {
		if h = use(h); h == nil {
			return invalid("Use", "a Middleware returned a nil Handler")
		}
	}
	if err := s.checkDeadLetter(ctx, &set.run); err != nil {
		if errors.Is(err, context.Canceled) { // ctx was, before the answer came
			return nil
		}
		return err
	}
	set.run.onStart()
	r := s.open(callConsume, set, h, nil)
	r.report.Log.Debug("jetpull: consuming", "concurrency", set.run.Workers)
	var drained error
	for next := r; next != nil; next, err = r.next(ctx) {
		r = next
		drained = r.pool.Run(ctx)
	}
	r.close(min(closeMost, r.pool.Left()))
	r.report.Log.Debug("jetpull: consuming ended")
	if drained != nil {
		drained = fmt.Errorf("%w: %w", ErrDrainTimeout, drained)
	}
	if err != nil {
		return errors.Join(s.wrapError("consume", err), drained)
	}
	return drained
}
