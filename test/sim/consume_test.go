package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/jetpull/jetpull"
)

// handlerMost is the longest that a handler takes.
const handlerMost = 4 * time.Second

// script is what the handlers of one Consume do with messages.
type script struct {
	*player
	run    *run
	slow   int // one handler in slow takes long
	fail   int // one handler in fail does not return nil
	delays []time.Duration
	most   int // attempts; 0: no limit
}

// consume runs one Consume, which ends by its context.
func (a *player) consume(ctx context.Context) bool {
	ctx, cancel := a.sometimesCancelled(ctx, 2, 0, a.plan.active/2)
	defer cancel()
	s, opts := a.drawConsume()
	a.began(s.run)
	defer context.AfterFunc(ctx, func() { a.stopping(a.name, s.run) })()
	err := a.sub.Consume(ctx, s.handle, opts...)
	a.ended(s.run)
	a.checkStop(ctx, "Consume", 0, s.run)
	if err == nil && ctx.Err() == nil {
		a.wrong("%s: Consume returned nil though its context goes on", a.name)
	}
	if err == nil || errors.Is(err, jetpull.ErrDrainTimeout) && !errors.Is(err, jetpull.ErrClosed) {
		return true
	}
	return a.allowedRun(ctx, "Consume", s.run, err)
}

// drawConsume draws how a Consume is run.
func (a *player) drawConsume() (*script, []jetpull.Option) {
	s := &script{player: a, run: &run{life: a.name, kind: useConsume}}
	s.slow, s.fail = pick(a.rng, 3, 30, 1000), pick(a.rng, 5, 20, 1000)
	opts := a.streamOptions(s.run)
	workers := 1
	if !a.plan.ackAll() && oneIn(a.rng, 2) {
		workers = 1 + a.rng.IntN(8)
		if s.run.prefetch > 0 {
			workers = min(workers, s.run.prefetch) // more would be refused
		}
		opts = append(opts, jetpull.Concurrency(workers))
	}
	s.run.serial = workers == 1
	if ordered := oneIn(a.rng, 2); ordered && !a.plan.ackAll() {
		s.run.ordered = true
		opts = append(opts, jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Subject() }))
	}
	if !a.plan.ackNone() && !a.plan.ackAll() {
		if oneIn(a.rng, 2) {
			for range 1 + a.rng.IntN(3) {
				s.delays = append(s.delays, between(a.rng, 0, 1500*time.Millisecond))
			}
			opts = append(opts, jetpull.RetryDelays(s.delays...))
		}
		if oneIn(a.rng, 5) {
			s.most = 2
		}
		if s.run.dead = oneIn(a.extra, 4); s.run.dead {
			s.most = 1 + a.extra.IntN(3)
			s.fail = pick(a.extra, 1, 1, 4, 10)
			opts = append(opts, jetpull.DeadLetter(deadSubject))
		}
		if s.most > 0 {
			opts = append(opts, jetpull.MaxAttempts(s.most))
		}
	}
	if oneIn(a.rng, 3) {
		opts = append(opts, jetpull.DrainTimeout(between(a.rng, 0, time.Second)))
	}
	return s, opts
}

// handle is the handler. What it does with a message follows from the seed and
// the delivery, whatever the order of the messages.
func (s *script) handle(ctx context.Context, m *jetpull.Msg) error {
	h := s.handed(s.name, s.run, m)
	defer s.returned(h)
	rng := rand.New(rand.NewPCG(s.seed^h.seq, h.count))
	if d := s.duration(rng); d > 0 && !rest(ctx, d) {
		s.failed(h, s.delay(h))
		return ctx.Err()
	}
	if s.plan.ackNone() {
		return nil
	}
	if !oneIn(rng, s.fail) {
		s.settled(h, acked, 0)
		if !s.plan.ackAll() && oneIn(rng, 6) {
			if err := m.Ack(); err != nil {
				s.unsettled(h)
			}
		}
		return nil
	}
	return s.goWrong(rng, h)
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

// goWrong fails a message in one of the ways that there are.
func (s *script) goWrong(rng *rand.Rand, h *handing) error {
	n := rng.IntN(10)
	if s.plan.ackAll() && n < 2 {
		n = 9 // what comes back later would be covered before by what follows
	}
	switch n {
	case 0:
		after := between(rng, 0, 2*time.Second)
		s.failed(h, after)
		return jetpull.Retry(after, errHandler)
	case 1:
		s.settled(h, termed, 0)
		return jetpull.Terminate("no use", errHandler)
	case 2:
		s.failed(h, s.delay(h))
		panic(errHandler)
	case 3:
		s.failed(h, s.delay(h))
		runtime.Goexit()
	}
	s.failed(h, s.delay(h))
	return errHandler
}

// failed notes that a message is to be delivered again, or is given up.
func (s *script) failed(h *handing, delay time.Duration) {
	if s.most > 0 && h.count >= uint64(s.most) {
		h.dead = s.run.dead
		s.settled(h, termed, 0)
		return
	}
	s.settled(h, naked, delay)
}

// delay is what RetryDelays says for a delivery.
func (s *script) delay(h *handing) time.Duration {
	if len(s.delays) == 0 {
		return 0
	}
	return s.delays[min(max(int(h.count), 1), len(s.delays))-1]
}
