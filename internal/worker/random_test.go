package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// TestRandomOutcomes draws messages, outcomes, redeliveries and the end, and checks that
// each message is settled once or handed back, that none is handled again that was done
// with, that keys keep their order, and that all credit comes back. Subtests are seeds.
func TestRandomOutcomes(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &drawn{stage: newStage(t), seed: seed, rand: rand.New(rand.NewPCG(seed, 9)), messages: make([]course, 61)}
				d.play()
			})
		})
	}
}

// drawn is a pool, and a server that delivers to it by the dice.
type drawn struct {
	*stage
	seed  uint64
	rand  *rand.Rand // of the server
	start time.Time
	set   Settings
	keyed bool

	messages  []course // by their sequence; the stage's lock guards them
	delivered int
}

type course struct { // of a message
	last          *msg    // its latest delivery
	done, settled bool    // its handler was done with it; the server knows
	back          pull.At // handed back until then
	runs          int     // handlers that have it
	tries         uint64
}

func (d *drawn) failf(format string, args ...any) {
	d.t.Errorf("%v: %s", time.Since(d.start), fmt.Sprintf(format, args...))
}

// locked runs f on what is known of m's message.
func (d *drawn) locked(m *msg, f func(s *course)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.messages[m.id.Seq])
}

func (d *drawn) settles(m *msg, f func(s *course)) error {
	if m.acks.Add(1) > 1 {
		d.failf("a delivery of message %d is settled twice", m.id.Seq)
	}
	d.locked(m, f)
	return nil
}

func (d *drawn) open(consumer Consumer) {
	ops := d.ops()
	ops.Handle = d.handle
	ops.Ack = func(m *msg) error { return d.settles(m, func(s *course) { s.settled = true }) }
	ops.Term = func(m *msg, _ string) error { return d.settles(m, func(s *course) { s.settled, s.done = true, true }) }
	ops.Nak = func(m *msg, after time.Duration) error {
		return d.settles(m, func(s *course) { s.back = time.Since(d.start) + after })
	}
	ops.HandBack = func(m *msg) { _ = ops.Nak(m, 0) }
	if d.keyed = d.rand.IntN(2) == 0; d.keyed {
		ops.Key = func(m *msg) string { return m.key }
	}
	d.set = Settings{
		Workers: 1 + d.rand.IntN(4), Prefetch: 5 + d.rand.IntN(20), KeepAlive: true, DrainTimeout: time.Minute,
		RetryDelays: []time.Duration{0, 300 * time.Millisecond},
	}
	d.pool = New(ops, d.set, consumer)
}

// handle checks that m may be handled, and draws what comes of it.
func (d *drawn) handle(_ context.Context, m *msg) error {
	var r *rand.Rand
	d.locked(m, func(s *course) {
		s.tries++
		r = rand.New(rand.NewPCG(d.seed, m.id.Seq<<8+s.tries)) // whatever the order of handlers
		if s.runs++; s.runs > 1 || s.done {
			d.failf("message %d is handled with %d handlers at it, done: %v", m.id.Seq, s.runs, s.done)
		}
		for seq := range d.messages[:m.id.Seq] {
			if o := &d.messages[seq]; d.keyed && o.last != nil && o.last.key == m.key && !o.done {
				d.failf("message %d is handled before message %d of its key", m.id.Seq, seq)
			}
		}
	})
	outcome := r.IntN(12)
	time.Sleep(time.Duration(r.IntN(4)*r.IntN(500)) * time.Millisecond)
	d.locked(m, func(s *course) {
		s.runs--
		s.done = outcome > 4
	})
	switch outcome {
	case 0:
		panic("boom")
	case 1:
		runtime.Goexit()
	case 2, 3:
		return errors.New("failed")
	case 4:
		if d.keyed {
			return errors.New("failed")
		}
		m.settled.Store(uint32(Naked))
		return d.settles(m, func(s *course) { s.back = time.Since(d.start) })
	case 5:
		return &TerminateError{Reason: "asked"}
	}
	return nil
}

// deliver delivers what is new, as far as the window goes, what was handed back, and what
// the server has forgotten that it delivered.
func (d *drawn) deliver(next *uint64) {
	var ms []*msg
	d.mu.Lock()
	send := func(seq uint64) {
		m := &msg{id: ID{seq, 1}, delivered: 1, key: fmt.Sprint(seq % 7)}
		d.messages[seq].last, d.messages[seq].back = m, 0
		d.delivered++
		ms = append(ms, m)
	}
	for seq := uint64(1); seq < *next; seq++ {
		s := &d.messages[seq]
		if s.back > 0 && s.back <= time.Since(d.start) && !s.settled || s.back == 0 && d.rand.IntN(50) == 0 {
			send(seq)
		}
	}
	for ; *next < uint64(len(d.messages)) && d.delivered-d.returned.N < d.set.Prefetch; *next++ {
		send(*next)
	}
	d.mu.Unlock()
	d.pool.Deliver(ms)
}

func (d *drawn) play() {
	d.start = time.Now().Add(-time.Second)
	consumer := Consumer{Shortest: 2 * time.Second, Longest: time.Hour, WindowMost: 100, Remembers: 1000}
	d.open(consumer)
	ctx, stop := context.WithCancel(d.t.Context())
	ended := make(chan error)
	go func() { ended <- d.pool.Run(ctx) }()
	next := uint64(1)
	for steps := d.rand.IntN(400); steps > 0; steps-- {
		d.deliver(&next)
		time.Sleep(time.Duration(d.rand.IntN(100)) * time.Millisecond)
	}
	stop()
	d.deliver(&next)
	if err := <-ended; err != nil {
		d.failf("run: %v", err)
	}
	d.pool.Close()
	synctest.Wait()
	for seq := range next {
		if s := &d.messages[seq]; s.last != nil && (s.done && !s.settled || !s.done && s.back == 0 || s.runs > 0) {
			d.failf("message %d: %+v", seq, *s)
		}
	}
	if q := &d.pool.queue; d.returned.N+q.credit.N != d.delivered || q.n > 0 || len(q.lines) > 0 {
		d.failf("%d of %d credits are back, %d messages are held", d.returned.N+q.credit.N, d.delivered, q.n)
	}
}
