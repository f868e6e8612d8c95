package jetpull

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jetpull/jetpull/internal/worker"
)

// closeMost bounds what the end of Messages, Consume and Close waits for on the wire: longer than a round trip takes on a
// connection that carries anything. Without a leader the server does not answer the last requests.
const closeMost = time.Second

// Messages yields messages in the order of their arrival, read ahead by overlapping pulls. The body of the loop
// acknowledges them. A message is no longer kept in progress when the loop has moved on to the next.
//
// The loop ends with a last pair of nil and the error: that of ctx, [ErrClosed], [ErrConsumerDeleted], a
// [StatusError] that no retry can resolve, or [ErrInvalidOption]. It continues after lost connections, leader changes
// and restarts of the server. When the loop ends, also by break, the messages that it has not yielded are handed
// back to the server. After [StopAfter] it ends without an error.
func (s *Subscription) Messages(ctx context.Context, opts ...Option) iter.Seq2[*Msg, error] {
	return func(yield func(*Msg, error) bool) {
		set, err := s.settings(ctx, callMessages, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		r, goesOn := s.open(callMessages, set, nil, nil).yieldAll(ctx, yield)
		if !goesOn {
			return
		}
		switch err := r.pool.Err(); {
		case err != nil && !errors.Is(err, worker.ErrReconfigured):
			yield(nil, s.wrapError("messages", err))
		case ctx.Err() != nil:
			yield(nil, contextError(ctx, nil))
		}
	}
}

// yieldAll yields the messages of r and of the runs that follow it, and returns the last of them and whether the loop goes
// on. That run has ended in any case.
func (r *run) yieldAll(ctx context.Context, yield func(*Msg, error) bool) (last *run, goesOn bool) {
	defer func() { r.close(closeMost) }()
	for next := r; next != nil; next = r.next(ctx) {
		r = next
		unwatch := context.AfterFunc(ctx, func() { next.pool.End(nil) })
		for m, ok := r.pool.Next(ctx); ok; m, ok = r.pool.Next(ctx) {
			if !yield(m, nil) {
				unwatch()
				return r, false
			}
		}
		unwatch()
	}
	return r, true
}
