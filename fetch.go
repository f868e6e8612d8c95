package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Next returns the next message: Pull(1). A no-wait pull looks whether one is
// there; only if not, a long pull waits for it. Callers that come while a pull
// is in flight share the next one.
//
// It fails with [ErrTimeout] when no message came until the deadline (see
// [MaxWait]), [ErrNoMessages] with [NoWait] and nothing there, [ErrClosed], a
// [StatusError] where the server refuses the pull, and ctx's error.
func (s *Subscription) Next(ctx context.Context, opts ...Option) (*Msg, error) {
	set, err := s.settings(ctx, callNext, opts)
	if err != nil {
		return nil, err
	}
	return s.next(ctx, set, nil)
}

// Fetch returns up to n messages, at least one: Pull(n). A no-wait pull takes
// what is there; only if that is nothing, a long pull waits for the first
// messages, or with [FillBatch] for all n. Memory grows with what arrives, not
// with n.
//
// Messages and an error are never returned together: when some have arrived
// the error is nil, and what ended the pull shows on the next call. The errors
// are those of [Subscription.Next].
func (s *Subscription) Fetch(ctx context.Context, n int, opts ...Option) ([]*Msg, error) {
	if n < 1 || n > maxBatch {
		return nil, invalid("n", "%d is not in 1..%d messages", n, maxBatch)
	}
	set, err := s.settings(ctx, callFetch, opts)
	if err != nil {
		return nil, err
	}
	defer s.engine.hook(set)()
	e := s.engine
	e.mu.Lock()
	c := e.newClaim()
	c.want = n
	c.got = make([]*Msg, 0, min(n, 128))
	byContext := e.fill(ctx, c, set)
	e.await(ctx, c)
	got, err := c.got, c.err
	e.recycle(c)
	e.mu.Unlock()
	if len(got) > 0 {
		return got, nil
	}
	return nil, s.callError("fetch", err, byContext)
}

// next claims one message. With a carrier, that message's acknowledgement
// carries the pull.
func (s *Subscription) next(ctx context.Context, set *settings, carrier *Msg) (*Msg, error) {
	defer s.engine.hook(set)()
	e := s.engine
	e.mu.Lock()
	c := e.newClaim()
	c.want = 1
	c.got = c.one[:0]
	c.carrier = carrier
	byContext := e.fill(ctx, c, set)
	e.await(ctx, c)
	var m *Msg
	if len(c.got) > 0 {
		m = c.got[0]
	}
	err := c.err
	e.recycle(c)
	e.mu.Unlock()
	if m != nil {
		return m, nil
	}
	return nil, s.callError("next", err, byContext)
}

// fill sets the terms of a claim for Next or Fetch. The lock is held.
func (e *engine) fill(ctx context.Context, c *claim, set *settings) (byContext bool) {
	if set.fillBatch {
		c.mode = claimFill
	}
	c.noWait = set.noWait
	c.maxBytes = set.maxBytes
	c.lane = e.rules.laneOf(set.terms, set.heartbeat, set.maxBytes > 0)
	c.deadline, c.asked, byContext = e.deadlineFor(ctx, set)
	return byContext
}

// settings are those of one call, after the checks that every call shares.
func (s *Subscription) settings(ctx context.Context, c call, opts []Option) (*settings, error) {
	if ctx == nil {
		return nil, invalid("ctx", "is nil; use context.Background()")
	}
	set, err := s.defaults.with(c, s.config(), opts)
	if err != nil {
		return nil, err
	}
	if s.changed.Load() {
		if err := set.fits(c, s.config()); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx, nil)
	}
	if _, bounded := ctx.Deadline(); c&callPull != 0 && !bounded && set.maxWait == 0 && gives(opts, "Heartbeat") {
		// The wait is the default one. With a deadline it is what is left, and a
		// heartbeat that has no place in the rest is left out.
		if err := set.checkHeartbeat(defaultMaxWait); err != nil {
			return nil, err
		}
	}
	if c&callPull != 0 && len(opts) > 0 {
		s.warnPinTimeout(set)
	}
	return set, nil
}

func gives(opts []Option, name string) bool {
	return slices.ContainsFunc(opts, func(o Option) bool { return o.name == name })
}

func (s *Subscription) callError(what string, err error, byContext bool) error {
	if errors.Is(err, ErrTimeout) {
		if denied := s.refusals.news(s.nc, s.engine.subject); denied != nil {
			err = denied
		}
	}
	if byContext && errors.Is(err, ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return fmt.Errorf("jetpull: %s from consumer %q on stream %q: %w", what, s.consumer, s.stream, err)
}

// AckNext acknowledges the message and returns the next one, both in one
// protocol message (+NXT); if there is none, a long pull waits for it as in
// [Subscription.Next]. Without opts it pulls with the terms that brought the
// message. The server does not confirm the acknowledgement.
//
// The message is acknowledged even if no next one comes, unless the error
// matches [ErrClosed], [ErrInvalidOption] or [jetstream.ErrMsgAlreadyAckd], or
// says that nothing could be sent; then it can still be acknowledged. A consumer
// with ack policy none is refused.
func (m *Msg) AckNext(ctx context.Context, opts ...Option) (*Msg, error) {
	s := m.sub
	if s.ackNone.Load() {
		return nil, invalid("AckNext", "consumer %q has ack policy none, so there is nothing to acknowledge; use Next", s.consumer)
	}
	set, err := s.settings(ctx, callNext, opts)
	if err != nil {
		if !errors.Is(err, ErrInvalidOption) {
			// Only the pull is off: what was worked on is to be acknowledged
			// whether or not its worker goes on.
			err = cmp.Or(m.Ack(), err)
		}
		return nil, err
	}
	if !m.settled.CompareAndSwap(false, true) {
		return nil, jetstream.ErrMsgAlreadyAckd
	}
	if len(opts) == 0 && m.lane != nil && m.lane.terms != s.defaults.terms.lane() {
		own := *set
		own.terms = m.lane.terms
		set = &own
	}
	next, err := s.next(ctx, set, m)
	if errors.Is(err, ErrClosed) {
		m.settled.Store(false)
	}
	if m.settled.Load() { // the engine clears it where nothing could be sent
		m.how.Store(byAck)
		s.counts.acks.Add(1)
	}
	return next, err
}
