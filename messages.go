package jetpull

import (
	"context"
	"iter"
	"time"
)

// closeMost is how long the end of Messages and Consume waits for what is on the wire:
// longer than a round trip takes on a connection that carries anything.
const closeMost = time.Second

// Messages yields messages as they come, read ahead by overlapping pulls. The loop
// acknowledges them. A message that the loop has gone past is no longer kept in progress.
//
// The loop ends with a last pair of nil and the error: that of ctx, [ErrClosed], [ErrConsumerDeleted], a
// [StatusError] that no retry can mend, [ErrInvalidOption]. Lost connections, leader changes and restarts of
// the server are waited out. When the loop ends, by break too, the messages that it has not got are handed
// back to the server. After [StopAfter] it ends without an error.
func (s *Subscription) Messages(ctx context.Context, opts ...Option) iter.Seq2[*Msg, error] {
	return func(yield func(*Msg, error) bool) {
		set, err := s.settings(ctx, callMessages, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		defer s.hook(set)()
		r := s.open(callMessages, set, nil)
		defer context.AfterFunc(ctx, func() { r.pool.End(nil) })()
		if !r.each(ctx, yield) {
			return
		}
		if err := r.pool.Err(); err != nil {
			yield(nil, s.wrapError("messages", err))
		} else if ctx.Err() != nil {
			yield(nil, contextError(ctx, nil))
		}
	}
}

// each yields each message until the loop or the run ends, and reports whether the run
// ended. It has ended in any case when each returns.
func (r *run) each(ctx context.Context, yield func(*Msg, error) bool) (ended bool) {
	defer r.close(closeMost)
	for {
		m, ok := r.pool.Next(ctx)
		if !ok {
			return true
		}
		if !yield(m, nil) {
			return false
		}
	}
}
