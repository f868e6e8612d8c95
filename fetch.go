package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// Next returns the next message. It first sends a no-wait pull. If no message is available, a long pull waits for one.
// Callers that arrive while a pull is in flight share the next one.
//
// It fails with [ErrTimeout] if no message arrived by the deadline (see [MaxWait]), with [ErrNoMessages] if none is available
// and [NoWait] is set, with [ErrClosed], with a [StatusError] if the server refuses the pull, and with ctx's error.
func (s *Subscription) Next(ctx context.Context, opts ...NextOption) (*Msg, error) {
	set, err := callSettings(ctx, s, callNext, opts)
	if err != nil {
		return nil, err
	}
	return s.next(ctx, set)
}

// Fetch returns up to n messages, at least one. It first sends a no-wait pull. If no message is available, a long pull waits
// for the first messages, or with [FillBatch] for all n. Memory grows with the messages that arrive, not with n.
//
// Messages and an error are never returned together: if some have arrived the error is nil, and the next call
// returns the error that ended the pull if it persists. The errors are those of [Subscription.Next].
func (s *Subscription) Fetch(ctx context.Context, n int, opts ...FetchOption) ([]*Msg, error) {
	if n < 1 || n > maxBatch {
		return nil, invalid("n", "%d is not in 1..%d messages", n, maxBatch)
	}
	set, err := callSettings(ctx, s, callFetch, opts)
	if err != nil {
		return nil, err
	}
	got, err := s.get(ctx, "fetch", n, set)
	if err != nil {
		return nil, err
	}
	msgs := make([]*Msg, len(got))
	for i, m := range got {
		msgs[i] = m.(*Msg)
	}
	return msgs, nil
}

// next returns one message.
func (s *Subscription) next(ctx context.Context, set *settings) (*Msg, error) {
	got, err := s.get(ctx, "next", 1, set)
	if err != nil {
		return nil, err
	}
	return got[0].(*Msg), nil
}

// get returns up to n messages, at least one. what names the call in errors.
func (s *Subscription) get(ctx context.Context, what string, n int, set *settings) ([]pull.Message, error) {
	wait, chosen, byContext := cmp.Or(set.maxWait, defaultMaxWait), set.maxWait > 0, false
	if until, ok := ctx.Deadline(); ok {
		// A deadline centuries ahead is cut, because it would overflow when added to the clock.
		if left := min(time.Until(until), maxWait); left < wait || !chosen {
			wait, chosen, byContext = left, false, true
		}
	}
	begun := s.driver.Now()
	ask := pull.Ask{
		Terms: set.terms, Want: n, NoWait: set.noWait, MaxBytes: set.maxBytes, Deadline: begun + max(wait, 1), Chosen: chosen,
	}
	if set.fillBatch {
		ask.Mode = pull.Fill
	}
	c := s.driver.Get(ctx, ask)
	if len(c.Got) > 0 {
		return c.Got, nil
	}
	err := s.public(ctx, c.Err)
	if !errors.Is(err, ErrTimeout) {
		return nil, s.wrapError(what, err)
	}
	if timeout, ok := c.Err.(*pull.Timeout); ok { //nolint:errorlint // the engine does not wrap its own
		now := s.driver.Now()
		text := fmt.Sprintf("no message within %v", (now - begun).Round(time.Millisecond))
		// A pull expires before the deadline, so that the call can end by it.
		if left := (ask.Deadline - now).Round(time.Millisecond); left > 0 && timeout.Cause == nil {
			text += fmt.Sprintf(": the pull expired %v before the deadline", left)
		}
		err = fmt.Errorf("%s: %w", text, err)
	}
	if byContext && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return nil, s.wrapError(what, err)
}

// closeMost bounds how long the end of Messages, Consume and Close waits for the server. A round trip on a working connection
// takes less. Without a leader, the server does not answer the last requests.
const closeMost = time.Second

// Messages yields messages in the order of their arrival. Overlapping pulls read ahead. The body of the loop
// acknowledges the messages. A message is kept in progress until the loop moves on to the next.
//
// The last pair is nil and the error that ended the loop: that of ctx, [ErrClosed], [ErrConsumerDeleted], a
// [StatusError] that no retry can resolve, or [ErrInvalidOption]. The loop continues after lost connections, leader
// changes and restarts of the server. When the loop ends, also by break, the messages that it has not yielded are
// handed back to the server. After [StopAfter] it ends without an error.
func (s *Subscription) Messages(ctx context.Context, opts ...MessagesOption) iter.Seq2[*Msg, error] {
	return func(yield func(*Msg, error) bool) {
		set, err := callSettings(ctx, s, callMessages, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		goesOn, err := s.open(callMessages, set, nil).yieldAll(ctx, yield)
		switch {
		case !goesOn:
		case err != nil:
			yield(nil, s.wrapError("messages", err))
		case ctx.Err() != nil:
			yield(nil, contextError(ctx, nil))
		}
	}
}

// yieldAll yields the messages of r and of the runs that follow it. It reports whether the loop wants more, and returns the error
// with which the last run ended by itself.
func (r *run) yieldAll(ctx context.Context, yield func(*Msg, error) bool) (goesOn bool, err error) {
	defer func() { r.close(closeMost) }()
	for next := r; next != nil; next, err = r.next(ctx) {
		r = next
		unwatch := context.AfterFunc(ctx, func() { next.pool.End(nil) })
		for m, ok := r.pool.Next(ctx); ok; m, ok = r.pool.Next(ctx) {
			if !yield(m, nil) {
				unwatch()
				return false, nil
			}
		}
		unwatch()
	}
	return true, err
}
