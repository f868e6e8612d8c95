package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// Next returns the next message. It first sends a no-wait pull. If no message is available, a long pull waits for
// one. Callers that arrive while a pull is in flight share the next one.
//
// It fails with [ErrTimeout] if no message came until the deadline (see [MaxWait]), with [ErrNoMessages] if none is
// available and [NoWait] is set, with [ErrClosed], with a [StatusError] if the server refuses the pull, and with ctx's error.
func (s *Subscription) Next(ctx context.Context, opts ...Option) (*Msg, error) {
	set, err := s.settings(ctx, callNext, opts)
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
func (s *Subscription) Fetch(ctx context.Context, n int, opts ...Option) ([]*Msg, error) {
	if n < 1 || n > maxBatch {
		return nil, invalid("n", "%d is not in 1..%d messages", n, maxBatch)
	}
	set, err := s.settings(ctx, callFetch, opts)
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

// next gets one message.
func (s *Subscription) next(ctx context.Context, set *settings) (*Msg, error) {
	got, err := s.get(ctx, "next", 1, set)
	if err != nil {
		return nil, err
	}
	return got[0].(*Msg), nil
}

// get gets up to n messages, at least one, for the call what.
func (s *Subscription) get(ctx context.Context, what string, n int, set *settings) ([]pull.Message, error) {
	wait, chosen, byContext := cmp.Or(set.maxWait, defaultMaxWait), set.maxWait > 0, false
	if until, ok := ctx.Deadline(); ok {
		// A deadline in centuries is none; added to the clock it would overflow.
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
	err := s.publicOf(ctx, c.Err)
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
