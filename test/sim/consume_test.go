package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
)

// handlerMost is the longest that a handler takes.
const handlerMost = 4 * time.Second

// script is what the handlers of one Consume do with messages.
type script struct {
	*player
	run  *run
	slow int // one handler in slow takes long
	fail int // one handler in fail does not return nil

	mu    sync.Mutex
	calls map[uint64]uint64 // of handlers, by stream sequence
}

// consume runs one Consume, which ends by its context.
func (a *player) consume(ctx context.Context) bool {
	if !a.lasting {
		var cancel context.CancelFunc
		ctx, cancel = a.sometimesCancelled(ctx, 2, 0, a.plan.active/2)
		defer cancel()
	}
	s, opts := a.drawConsume()
	a.began(s.run)
	defer context.AfterFunc(ctx, func() { a.stopping(a.name, s.run) })()
	err := a.sub.Consume(ctx, s.handle, append(opts, jetpull.OnStart(func() { s.run.pulled = true }))...)
	a.ended(s.run)
	a.checkStop("Consume", s.run)
	if err == nil && ctx.Err() == nil {
		a.wrong("%s: Consume returned nil though its context goes on", a.name)
	}
	if err == nil || errors.Is(err, jetpull.ErrDrainTimeout) && !errors.Is(err, jetpull.ErrClosed) && !errors.Is(err, jetpull.ErrConsumerDeleted) {
		return true
	}
	return a.allowedRun(ctx, "Consume", s.run, err)
}

// drawConsume draws how a Consume is run.
func (a *player) drawConsume() (*script, []jetpull.ConsumeOption) {
	s := &script{player: a, run: &run{life: a.name, kind: useConsume, single: a.single, drain: defaultDrain}, calls: map[uint64]uint64{}}
	s.slow, s.fail = pick(a.rng, 3, 30, 1000), pick(a.rng, 5, 20, 1000)
	if a.tight {
		s.slow = 2
	}
	opts := as[jetpull.ConsumeOption](a.streamOptions(s.run))
	workers := 1
	if oneIn(a.rng, 2) {
		workers = 1 + a.rng.IntN(8)
		if s.run.prefetch > 0 {
			workers = min(workers, s.run.prefetch) // more would be refused
		}
		opts = append(opts, jetpull.Concurrency(workers))
	}
	s.run.serial = workers == 1
	if s.run.ordered = oneIn(a.rng, 2); s.run.ordered {
		opts = append(opts, jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Subject() }))
	}
	if !a.plan.ackNone() {
		opts = append(opts, a.drawRetries(s)...)
	}
	if oneIn(a.rng, 3) {
		s.run.drain = between(a.rng, 0, time.Second)
		opts = append(opts, jetpull.DrainTimeout(s.run.drain))
	}
	if oneIn(a.extra, 4) {
		s.run.timeout = between(a.extra, 5*time.Millisecond, handlerMost*2/3)
		s.slow = pick(a.extra, 3, 10)
		opts = append(opts, jetpull.HandlerTimeout(s.run.timeout))
	}
	return s, opts
}

// defaultDrain is the default of DrainTimeout.
const defaultDrain = 30 * time.Second

// drawRetries draws the results of messages whose handlers fail.
func (a *player) drawRetries(s *script) (opts []jetpull.ConsumeOption) {
	if oneIn(a.rng, 2) {
		most := pick(a.extra, 1500*time.Millisecond, 6*time.Second)
		for range 1 + a.rng.IntN(3) {
			s.run.delays = append(s.run.delays, between(a.rng, 0, most))
		}
		opts = append(opts, jetpull.RetryDelays(s.run.delays...))
	}
	if oneIn(a.rng, 5) {
		s.run.most = 2
	}
	if s.run.dead = a.plan.failing || oneIn(a.extra, 4); s.run.dead {
		s.run.most = 1 + a.extra.IntN(3)
		s.fail = pick(a.extra, 1, 1, 4, 10)
		opts = append(opts, jetpull.DeadLetter(deadSubject))
	}
	if s.run.most > 0 {
		opts = append(opts, jetpull.MaxAttempts(s.run.most))
	}
	return opts
}

// handle is the handler. Its result for a message follows from the seed, the
// delivery and how often the message was handled, whatever the order of the messages.
func (s *script) handle(ctx context.Context, m *jetpull.Msg) error {
	h := s.handed(s.name, s.run, m)
	defer func() {
		s.returned(h)
		s.locked(func(time.Duration) {
			h.cancelled = ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		})
	}()
	if s.calm.Load() {
		s.settled(h, acked)
		return nil
	}
	rng := rand.New(rand.NewPCG(s.seed^h.seq, h.count<<32+s.call(h.seq)))
	if failed, err := s.take(ctx, rng, h); failed || s.plan.ackNone() {
		return err
	}
	if oneIn(rng, s.fail) {
		return s.goWrong(rng, m, h)
	}
	s.settled(h, acked)
	if oneIn(rng, 6) && m.Ack() == nil && oneIn(rng, 4) {
		return errHandler // it has settled the message all the same
	}
	return nil
}

// call counts the calls of handlers for a message.
func (s *script) call(seq uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[seq]++
	return s.calls[seq]
}

// take takes as long as a handler does, and reports whether it failed by that: its context ended, or it overran its time. Some handlers ignore that.
func (s *script) take(ctx context.Context, rng *rand.Rand, h *handing) (failed bool, err error) {
	d := s.duration(rng)
	if d == 0 {
		return false, nil
	}
	heeds := !oneIn(rng, 4)
	if heeds {
		failed = !rest(ctx, d)
	} else {
		time.Sleep(d)
	}
	limit, now := s.run.timeout, s.now()
	if limit > 0 && now >= h.at+limit {
		if heeds && now > h.at+limit {
			s.wrong("%s: the context of a handler that is to end after %v ended after %v", s.name, limit, now-h.at)
		}
		s.failed(h, now, byDelays)
		if heeds {
			return true, pick(rng, nil, ctx.Err())
		}
		return true, ctx.Err()
	}
	if failed {
		s.failed(h, now, byDelays)
	}
	return failed, ctx.Err()
}

func (s *script) duration(rng *rand.Rand) time.Duration {
	switch {
	case oneIn(rng, s.slow):
		return between(rng, 0, handlerMost)
	case oneIn(rng, 2):
		return between(rng, 0, 20*time.Millisecond)
	}
	return 0
}

var errHandler = errors.New("the handler failed")

// byDelays stands for the delay of a retry that the handler leaves to the client.
const byDelays = -1

// goWrong fails a message in one of the ways that there are.
func (s *script) goWrong(rng *rand.Rand, m *jetpull.Msg, h *handing) error {
	switch rng.IntN(10) {
	case 0:
		after := between(rng, 0, 5*time.Second)
		s.failed(h, s.now(), after)
		return jetpull.Retry(after, errHandler)
	case 1:
		s.settled(h, termed)
		return jetpull.Terminate("no use", errHandler)
	case 2:
		s.failed(h, s.now(), byDelays)
		panic(errHandler)
	case 3:
		s.failed(h, s.now(), byDelays)
		runtime.Goexit()
	case 4, 5:
		s.settled(h, naked)
		if err := m.NakWithDelay(between(rng, -time.Second, 2*time.Second)); err == nil {
			time.Sleep(between(rng, 0, 200*time.Millisecond)) // it can be delivered again meanwhile
			return pick(rng, nil, errHandler)
		}
		s.unsettled(h)
	}
	s.failed(h, s.now(), byDelays)
	return errHandler
}
