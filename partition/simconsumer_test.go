package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
)

// simPart is a partition's messages and its consumer.
type simPart struct {
	keys      []string // of each message; its sequence is its place and 1
	numbers   []int
	settled   map[uint64]bool
	pending   map[uint64]time.Time // when it is redelivered without an acknowledgement
	again     []uint64             // to be redelivered, in this order
	next      uint64
	delivered uint64
	pin       *simSession
}

func (s *simPart) ackFloor() uint64 {
	floor := uint64(0)
	for s.settled[floor+1] {
		floor++
	}
	return floor
}

const simAckWait = 3 * time.Second

// restart has the effect of a server restart on a consumer: pins and the queue of messages handed back are not stored.
func (s *simPart) restart() {
	s.pin, s.again = nil, nil
	for seq := range s.pending {
		s.pending[seq] = time.Now().Add(simAckWait)
	}
}

// deliver returns the message that the server delivers to a session next, and the number of the delivery. The world is locked.
func (s *simPart) deliver(c *simSession) (seq, number uint64) {
	if s.pin != nil && s.pin != c {
		return 0, 0
	}
	var late []uint64
	for seq, until := range s.pending {
		if !time.Now().Before(until) && !slices.Contains(s.again, seq) {
			late = append(late, seq)
		}
	}
	slices.Sort(late)
	s.again = append(s.again, late...)
	for seq == 0 && len(s.again) > 0 {
		if first := s.again[0]; !s.settled[first] {
			seq = first
		}
		s.again = s.again[1:]
	}
	for seq == 0 && len(s.pending) < 16 && s.next <= uint64(len(s.keys)) {
		if !s.settled[s.next] {
			seq = s.next
		}
		s.next++
	}
	if seq != 0 {
		if s.pin != c {
			c.pins++
		}
		s.pin = c
		s.pending[seq] = time.Now().Add(simAckWait)
		s.delivered++
		c.note("%s gets %d of %d, delivery %d", c.name, seq, c.n, s.delivered)
	}
	return seq, s.delivered
}

// nak queues a message for redelivery, or after a delay. The world is locked.
func (s *simPart) nak(seq uint64, delay time.Duration) {
	if _, ok := s.pending[seq]; !ok {
		return
	}
	if delay > 0 {
		s.pending[seq] = time.Now().Add(delay)
	} else if !slices.Contains(s.again, seq) {
		s.again = append(s.again, seq)
	}
}

// simConsumer is the consumer of a partition as a process uses it.
type simConsumer struct {
	*process
	n int
}

func (c *simConsumer) unpin(ctx context.Context) error {
	return c.call(ctx, func() error {
		if c.plant != samePin {
			c.parts[c.n].pin = nil
		}
		return nil
	})
}

func (c *simConsumer) pending(ctx context.Context) (pending int, err error) {
	err = c.call(ctx, func() error {
		pending = len(c.parts[c.n].pending)
		return nil
	})
	if c.plant == noReset {
		pending = 0
	}
	return pending, err
}

func (c *simConsumer) reset(ctx context.Context) error {
	return c.call(ctx, func() error {
		c.note("%s resets %d: floor %d, pending %v", c.name, c.n, c.parts[c.n].ackFloor(), c.parts[c.n].pending)
		n := c.n
		if c.plant == wrongReset {
			n = (n + 1) % len(c.parts)
		}
		// A request of a process that was cut off can arrive late.
		if owner := nameOf(c.record().owner(n)); owner != c.name && owner != nameOf(ghost) && c.breaks == 0 {
			c.fault("%s resets the consumer of partition %d, which belongs to %q", c.name, n, owner)
		}
		s := c.parts[n]
		s.next, s.again, s.pending, s.delivered = s.ackFloor()+1, nil, map[uint64]time.Time{}, 0
		for seq := range s.settled { // limits retention: acknowledgements above the floor are forgotten
			if seq >= s.next {
				delete(s.settled, seq)
			}
		}
		return nil
	})
}

// simSession is a Subscription.
type simSession struct {
	*simConsumer
	part         *simPart
	expect       uint64
	lost, pins   uint64
	breaksBefore uint64
}

func (c *simSession) missed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (c.lost > 0 || c.pins > 1) && c.plant != lostDelivery
}

func (c *simSession) subscribe(ctx context.Context) error {
	return c.call(ctx, func() error {
		c.expect, c.breaksBefore = c.part.delivered+1, c.breaks
		return nil
	})
}

func (c *simSession) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeMost)
	defer cancel()
	_ = c.call(ctx, func() error {
		if c.part.pin == c {
			c.part.pin = nil
		}
		return nil
	})
}

// take pulls one message. A message that is lost in flight leaves a gap. If the connection is cut, none arrives.
func (c *simSession) take(ctx context.Context) (seq uint64) {
	var number uint64
	if c.call(ctx, func() error { seq, number = c.part.deliver(c); return nil }) != nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if seq != 0 {
		c.lost += max(number, c.expect) - c.expect
		c.expect = number + 1
	}
	return seq
}

func (c *simSession) message(seq uint64) *jetpull.Msg {
	return jetpulltest.NewMsg(c.part.keys[seq-1], fmt.Append(nil, c.part.numbers[seq-1]), jetpulltest.Sequence(seq))
}

func (c *simSession) fetch(ctx context.Context, n int) (msgs []*jetpull.Msg, err error) {
	for range n {
		if seq := c.take(ctx); seq != 0 {
			msgs = append(msgs, c.message(seq))
		}
	}
	return msgs, nil
}

func (c *simSession) handBack(ctx context.Context, msgs []*jetpull.Msg) error {
	c.mu.Lock()
	if c.plant == noGather {
		c.rng.Shuffle(len(msgs), func(i, j int) { msgs[i], msgs[j] = msgs[j], msgs[i] })
	}
	c.mu.Unlock()
	return c.call(ctx, func() error {
		if c.breaks != c.breaksBefore {
			return errMissed
		}
		for _, m := range msgs {
			c.note("%s sorts %d of %d", c.name, m.Sequence(), c.n)
			c.part.nak(m.Sequence(), 0)
		}
		return nil
	})
}

// consume is Consume with OrderedBy: it keeps the order of the keys that it got, retries in place, and hands back in any order.
func (c *simSession) consume(ctx context.Context, h jetpull.Handler, guard jetpull.Middleware) error {
	h = guard(c.middleware(h))
	var wg sync.WaitGroup
	lanes := map[string]chan uint64{}
	var back []uint64
	delays := map[uint64]time.Duration{} // of messages that are handed back with a delay
	for ctx.Err() == nil {
		seq := c.take(ctx)
		if seq == 0 {
			_ = sleep(ctx, 5*time.Millisecond)
			continue
		}
		key := c.part.keys[seq-1]
		lane := lanes[key]
		if lane == nil {
			lane = make(chan uint64, len(c.part.keys)*100)
			lanes[key] = lane
			wg.Go(func() {
				for {
					select {
					case seq := <-lane:
						if ok, after := c.handle(ctx, seq, h); !ok {
							c.mu.Lock()
							back, delays[seq] = append(back, seq), after
							c.mu.Unlock()
						}
					case <-ctx.Done():
						return
					}
				}
			})
		}
		lane <- seq
	}
	wg.Wait()
	for _, lane := range lanes {
		for len(lane) > 0 {
			back = append(back, <-lane)
		}
	}
	c.mu.Lock()
	c.rng.Shuffle(len(back), func(i, j int) { back[i], back[j] = back[j], back[i] })
	c.mu.Unlock()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = c.call(closing, func() error {
		if !c.resets && c.part.pin != c {
			return nil // before 2.14, late NAKs of a former owner change the order: DESIGN.md
		}
		for _, seq := range back {
			c.note("%s hands back %d of %d after %v", c.name, seq, c.n, delays[seq])
			c.part.nak(seq, delays[seq])
		}
		return nil
	})
	return nil
}

var errMiddleware = errors.New("the middleware fails")

// middleware replaces some results by errors.
func (c *simSession) middleware(next jetpull.Handler) jetpull.Handler {
	return func(ctx context.Context, m *jetpull.Msg) error {
		err := next(ctx, m)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil && c.rng.IntN(20) == 0 {
			err = jetpull.Retry(700*time.Millisecond, errMiddleware)
		}
		return err
	}
}

// handle handles a message until it succeeds. It returns false if the message must be handed back, and the delay.
func (c *simSession) handle(ctx context.Context, seq uint64, h jetpull.Handler) (ok bool, after time.Duration) {
	for ctx.Err() == nil {
		m := c.message(seq)
		err := h(context.WithoutCancel(ctx), m)
		after = 0
		if retry, is := errors.AsType[*jetpull.RetryError](err); is {
			after = retry.After
		}
		switch o := jetpulltest.OutcomeOf(m); {
		case o.Verb == jetpulltest.Nak: // which releases its key
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			_ = c.call(closing, func() error { c.part.nak(seq, o.Delay); return nil })
			cancel()
			return true, 0
		case err == nil:
			c.ack(context.WithoutCancel(ctx), seq)
			return true, 0
		case ctx.Err() != nil:
			return false, after
		}
		c.keep(ctx, seq)
		_ = sleep(ctx, 2*time.Millisecond+after)
		after = 0 // a message that waits is handed back at once
	}
	return false, after
}

// ack acknowledges a message. If the acknowledgement is lost, the message is redelivered.
func (c *simSession) ack(ctx context.Context, seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = c.call(ctx, func() error {
		c.note("%s acknowledges %d of %d", c.name, seq, c.n)
		c.part.settled[seq] = true
		delete(c.part.pending, seq)
		return nil
	})
}

// keep reports a message in progress.
func (c *simSession) keep(ctx context.Context, seq uint64) {
	_ = c.call(ctx, func() error {
		if _, ok := c.part.pending[seq]; ok {
			c.part.pending[seq] = time.Now().Add(simAckWait)
		}
		return nil
	})
}

// work is the handler of all members. It records violations.
func (p *process) work(ctx context.Context, m *jetpull.Msg) error {
	var number int
	_, _ = fmt.Sscan(string(m.Data()), &number)
	key := m.Subject()
	n := Of(key, len(p.parts))
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	if p.asleep != nil { // it does not begin
		p.mu.Unlock()
		return errSim
	}
	p.note("%s begins %s %d: %d of %d", p.name, key, number, m.Sequence(), n)
	if owner := nameOf(p.record().owner(n)); owner != p.name && owner != nameOf(ghost) {
		p.fault("%s: %d begins in %s, and its partition belongs to %q", key, number, p.name, owner)
	}
	if number > p.next[key] {
		p.fault("%s: %d begins in %s before %d has succeeded", key, number, p.name, p.next[key])
	}
	p.own[key]++
	p.working[n]++
	if p.busy[key]++; p.busy[key] > 1 {
		p.fault("%s: %d begins in %s while another runs", key, number, p.name)
	}
	d, fails, naps := time.Duration(p.rng.Int64N(int64(8*time.Millisecond))), p.rng.IntN(10) == 0, p.naps
	if p.rng.IntN(300) == 0 {
		d = 2 * simAckWait
	}
	p.mu.Unlock()
	err := sleep(ctx, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.working[n]--
	if p.dead || p.asleep != nil || p.naps != naps {
		return errSim // kill and nap have counted it
	}
	p.busy[key]--
	p.own[key]--
	switch {
	case err != nil:
		return context.Cause(ctx)
	case fails:
		return errSim
	}
	if p.next[key] == number {
		p.next[key]++
		p.done++
	}
	return nil
}

// stopped counts a process's handlers as over. The world is locked.
func (p *process) stopped() {
	for key, n := range p.own {
		p.busy[key] -= n
		p.own[key] = 0
	}
}
