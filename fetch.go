package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// Next returns the next message. A no-wait pull looks whether one is there; only if not, a long pull
// waits for it. Callers that come while a pull is in flight share the next one.
//
// It fails with [ErrTimeout] when no message came until the deadline (see [MaxWait]), [ErrNoMessages] with [NoWait]
// and nothing there, [ErrClosed], a [StatusError] where the server refuses the pull, and ctx's error.
func (s *Subscription) Next(ctx context.Context, opts ...Option) (*Msg, error) {
	set, err := s.settings(ctx, callNext, opts)
	if err != nil {
		return nil, err
	}
	return s.next(ctx, set)
}

// Fetch returns up to n messages, at least one. A no-wait pull takes what is
// there; only if that is nothing, a long pull waits for the first messages, or with
// [FillBatch] for all n. Memory grows with what arrives, not with n.
//
// Messages and an error are never returned together: when some have arrived the error is nil, and what ended
// the pull shows on the next call. The errors are those of [Subscription.Next].
func (s *Subscription) Fetch(ctx context.Context, n int, opts ...Option) ([]*Msg, error) {
	if n < 1 || n > maxBatch {
		return nil, invalid("n", "%d is not in 1..%d messages", n, maxBatch)
	}
	set, err := s.settings(ctx, callFetch, opts)
	if err != nil {
		return nil, err
	}
	ask, end := s.ask(ctx, set)
	ask.Want = n
	c := s.driver.Get(ctx, ask)
	if len(c.Got) == 0 {
		return nil, s.callError(ctx, "fetch", c.Err, end)
	}
	got := make([]*Msg, len(c.Got))
	for i, m := range c.Got {
		got[i] = m.(*Msg)
	}
	return got, nil
}

// next gets one message.
func (s *Subscription) next(ctx context.Context, set *settings) (*Msg, error) {
	ask, end := s.ask(ctx, set)
	ask.Want = 1
	c := s.driver.Get(ctx, ask)
	if len(c.Got) == 0 {
		return nil, s.callError(ctx, "next", c.Err, end)
	}
	return c.Got[0].(*Msg), nil
}

// deadline is when a call of Next or Fetch has to end, and by what.
type deadline struct {
	begun, at pull.At
	byContext bool
}

// ask is what Next or Fetch asks for, but for the number of messages.
func (s *Subscription) ask(ctx context.Context, set *settings) (ask pull.Ask, end deadline) {
	ask.Terms, ask.NoWait, ask.MaxBytes = set.terms, set.noWait, set.maxBytes
	if set.fillBatch {
		ask.Mode = pull.Fill
	}
	wait, chosen := cmp.Or(set.maxWait, defaultMaxWait), set.maxWait > 0
	if until, ok := ctx.Deadline(); ok {
		// A deadline in centuries is none; added to the clock it would overflow.
		if left := min(time.Until(until), maxWait); left < wait || !chosen {
			wait, chosen, end.byContext = left, false, true
		}
	}
	end.begun = s.driver.Now()
	end.at = end.begun + max(wait, 1)
	ask.Deadline, ask.Chosen = end.at, chosen
	return ask, end
}

// callError is the error of a call that ends without a message.
func (s *Subscription) callError(ctx context.Context, what string, err error, end deadline) error {
	timeout, _ := err.(*pull.Timeout) //nolint:errorlint // the engine does not wrap its own
	if err = s.publicOf(ctx, err); errors.Is(err, ErrTimeout) {
		if refused := s.driver.Refused(); refused != nil {
			return s.wrapError(what, refused)
		}
		if timeout != nil {
			err = end.missed(s.driver.Now(), err, timeout.Cause)
		}
		if end.byContext {
			err = &contextTimeout{err}
		}
	}
	return s.wrapError(what, err)
}

// missed adds to err, a timeout, how long the call waited. A pull expires before the deadline, so that the call can end by it.
func (d deadline) missed(now pull.At, err, cause error) error {
	const unit = time.Millisecond
	waited, left := (now - d.begun).Round(unit), (d.at - now).Round(unit)
	if left > 0 && cause == nil {
		return fmt.Errorf("no message within %v: the pull expired %v before the deadline: %w", waited, left, err)
	}
	return fmt.Errorf("no message within %v: %w", waited, err)
}
