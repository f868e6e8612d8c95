package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
)

// world is a server with the bucket and the consumers of a set, and the history of what handlers did. The members run the real code
// over it, in virtual time.
type world struct {
	rng     *rand.Rand
	plant   plant
	mu      sync.Mutex
	rev     uint64
	keys    map[string]*simEntry
	watches []*simWatch
	parts   []*simPart
	next    map[string]int // by key: the number of the message that may begin next
	busy    map[string]int // by key: handlers that run in processes that are alive
	done    int
	faults  []string
}

// process is where a member runs. The network of one that is cut does not answer; one that is dead does nothing any more.
type process struct {
	*world
	name string
	cut  chan struct{} // nil: connected; closed when it is connected again
	dead bool
	own  map[string]int // its part of busy
}

var errSim = errors.New("no answer")

// call is one request: it takes a while, and may not get through, or lose its answer.
func (p *process) call(ctx context.Context, do func() error) error {
	p.mu.Lock()
	delay := time.Duration(p.rng.Int64N(int64(3*time.Millisecond) + 1))
	p.mu.Unlock()
	if err := sleep(ctx, delay); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		cut := p.cut
		if p.dead {
			p.mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		}
		if cut == nil {
			err := do()
			lost := p.rng.IntN(100) == 0
			p.mu.Unlock()
			if lost {
				return errSim
			}
			return err
		}
		p.mu.Unlock()
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// simEntry is a key's last entry.
type simEntry struct {
	key   string
	value []byte
	rev   uint64
	at    time.Time
	op    jetstream.KeyValueOp
}

func (e *simEntry) Bucket() string                  { return "sim" }
func (e *simEntry) Key() string                     { return e.key }
func (e *simEntry) Value() []byte                   { return e.value }
func (e *simEntry) Revision() uint64                { return e.rev }
func (e *simEntry) Created() time.Time              { return e.at }
func (e *simEntry) Delta() uint64                   { return 0 }
func (e *simEntry) Operation() jetstream.KeyValueOp { return e.op }
func (p *process) hides(key string) bool {
	return p.plant == otherMember && p.name == "p0" && key == memberPrefix+"p1"
}
func (w *simWatch) Updates() <-chan jetstream.KeyValueEntry { return w.out }
func (w *simWatch) Error() <-chan error                     { return nil }
func (w *simWatch) Stop() error                             { return nil }

// simWatch delivers entries in order, each some time after it was written.
type simWatch struct {
	process *process
	in      chan jetstream.KeyValueEntry
	out     chan jetstream.KeyValueEntry
}

func (p *process) WatchAll(ctx context.Context, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	w := &simWatch{process: p, in: make(chan jetstream.KeyValueEntry, 100_000), out: make(chan jetstream.KeyValueEntry)}
	err := p.call(ctx, func() error {
		all := make([]*simEntry, 0, len(p.keys))
		for _, e := range p.keys {
			all = append(all, e)
		}
		slices.SortFunc(all, func(a, b *simEntry) int { return int(a.rev) - int(b.rev) })
		for _, e := range all {
			w.in <- e
		}
		w.in <- nil
		p.watches = append(p.watches, w)
		return nil
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			select {
			case e := <-w.in:
				if p.call(ctx, func() error { return nil }) != nil && ctx.Err() != nil {
					return
				}
				if e != nil && p.hides(e.Key()) {
					continue
				}
				select {
				case w.out <- e:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

// write stores an entry. The world is locked.
func (w *world) write(key string, value []byte, op jetstream.KeyValueOp) uint64 {
	w.rev++
	if w.plant == earlyDelete && strings.HasPrefix(key, memberPrefix) {
		value = bytes.Replace(value, fmt.Append(nil, int64(time.Second)), fmt.Append(nil, int64(time.Second/8)), 1)
	}
	wrong := time.Duration(w.rng.IntN(7200)-3600) * time.Second // the clock of the server
	e := &simEntry{key: key, value: value, rev: w.rev, at: time.Now().Add(wrong), op: op}
	w.keys[key] = e
	for _, watch := range w.watches {
		watch.in <- e
	}
	return e.rev
}

func (p *process) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (rev uint64, err error) {
	err = p.call(ctx, func() error {
		if e := p.keys[key]; e != nil && e.op == jetstream.KeyValuePut {
			return jetstream.ErrKeyExists
		}
		rev = p.write(key, value, jetstream.KeyValuePut)
		return nil
	})
	return rev, err
}

func (p *process) Update(ctx context.Context, key string, value []byte, rev uint64) (now uint64, err error) {
	err = p.call(ctx, func() error {
		var have uint64
		if e := p.keys[key]; e != nil {
			have = e.rev
		}
		if have != rev {
			return jetstream.ErrKeyRevisionMismatch
		}
		now = p.write(key, value, jetstream.KeyValuePut)
		return nil
	})
	return now, err
}

func (p *process) remove(ctx context.Context, key string, rev uint64) error {
	return p.call(ctx, func() error {
		if e := p.keys[key]; e == nil || e.rev != rev {
			return jetstream.ErrKeyRevisionMismatch
		}
		p.write(key, nil, jetstream.KeyValuePurge)
		return nil
	})
}

// simPart is a partition's messages and its consumer.
type simPart struct {
	keys    []string // of each message; its sequence is its place and 1
	numbers []int
	settled map[uint64]bool
	pending map[uint64]time.Time // when it is redelivered without an acknowledgement
	again   []uint64             // to be redelivered, in this order
	next    uint64
	pin     *simClient
}

func (s *simPart) ackFloor() uint64 {
	floor := uint64(0)
	for s.settled[floor+1] {
		floor++
	}
	return floor
}

// simClient is one Consume.
type simClient struct {
	ctx context.Context
	p   *process
}

const simAckWait = 30 * time.Second

func (p *process) rewind(ctx context.Context, n int) error {
	return p.call(ctx, func() error {
		s := p.parts[n]
		if p.plant != samePin {
			s.pin = nil
		}
		if p.plant == wrongReset {
			s = p.parts[(n+1)%len(p.parts)]
		}
		if len(s.pending) > 0 && p.plant != noReset {
			s.next, s.again, s.pending = s.ackFloor()+1, nil, map[uint64]time.Time{}
			for seq := range s.settled { // limits retention: acknowledgements above the floor are forgotten
				if seq >= s.next {
					delete(s.settled, seq)
				}
			}
		}
		return nil
	})
}

// take returns the message that the server delivers to a client next, or 0. The world is locked.
func (s *simPart) take(c *simClient) uint64 {
	if s.pin != nil && s.pin != c {
		return 0
	}
	late := []uint64{}
	for seq, until := range s.pending {
		if !time.Now().Before(until) && !slices.Contains(s.again, seq) {
			late = append(late, seq)
		}
	}
	slices.Sort(late)
	s.again = append(s.again, late...)
	seq := uint64(0)
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
		s.pin = c
		s.pending[seq] = time.Now().Add(simAckWait)
	}
	return seq
}

// consume is Consume with OrderedBy: it keeps the order of keys that it got, retries in place, and hands back in any order.
func (p *process) consume(ctx context.Context, n int, h jetpull.Handler) (floor uint64, err error) {
	if err := p.rewind(ctx, n); err != nil {
		return 0, err
	}
	outer := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	client, missed := &simClient{ctx: ctx, p: p}, false
	s := p.parts[n]
	var wg sync.WaitGroup
	lanes := map[string]chan uint64{}
	var back []uint64 // in no particular order
	for ctx.Err() == nil {
		var seq uint64
		err := p.call(ctx, func() error { seq = s.take(client); return nil })
		if seq == 0 || err != nil {
			missed = missed || seq != 0 && p.plant != lostDelivery
			_ = sleep(ctx, 5*time.Millisecond)
			continue
		}
		if missed { // which the number of this delivery shows
			p.mu.Lock()
			back = append(back, seq)
			p.mu.Unlock()
			stop()
			break
		}
		key := s.keys[seq-1]
		lane := lanes[key]
		if lane == nil {
			lane = make(chan uint64, len(s.keys)*10)
			lanes[key] = lane
			wg.Go(func() {
				for {
					select {
					case seq := <-lane:
						if !p.handle(ctx, s, seq, h) {
							p.mu.Lock()
							back = append(back, seq)
							p.mu.Unlock()
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
	p.mu.Lock()
	p.rng.Shuffle(len(back), func(i, j int) { back[i], back[j] = back[j], back[i] })
	p.mu.Unlock()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	stop()
	_ = p.call(closing, func() error {
		for _, seq := range back {
			if _, ok := s.pending[seq]; ok {
				s.again = append(s.again, seq)
			}
		}
		if s.pin == client {
			s.pin = nil
		}
		return nil
	})
	_ = p.call(closing, func() error { floor = s.ackFloor(); return nil })
	if outer.Err() == nil {
		return floor, errMissed
	}
	return floor, nil
}

// handle handles a message until it succeeds. It returns false where it is to be handed back.
func (p *process) handle(ctx context.Context, s *simPart, seq uint64, h jetpull.Handler) bool {
	for ctx.Err() == nil {
		m := jetpulltest.NewMsg(s.keys[seq-1], fmt.Append(nil, s.numbers[seq-1]), jetpulltest.Sequence(seq))
		if h(context.WithoutCancel(ctx), m) == nil {
			p.ack(context.WithoutCancel(ctx), s, seq)
			return true
		}
		_ = sleep(ctx, 2*time.Millisecond)
	}
	return false
}

// ack acknowledges a message. If that is lost, it is redelivered.
func (p *process) ack(ctx context.Context, s *simPart, seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = p.call(ctx, func() error {
		s.settled[seq] = true
		delete(s.pending, seq)
		return nil
	})
}

// work is the handler of all members. It records what must not be.
func (p *process) work(ctx context.Context, m *jetpull.Msg) error {
	var number int
	_, _ = fmt.Sscan(string(m.Data()), &number)
	key := m.Subject()
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	if number > p.next[key] {
		p.faults = append(p.faults, fmt.Sprintf("%s: %d begins in %s before %d has succeeded", key, number, p.name, p.next[key]))
	}
	p.own[key]++
	if p.busy[key]++; p.busy[key] > 1 {
		p.faults = append(p.faults, fmt.Sprintf("%s: %d begins in %s while another runs", key, number, p.name))
	}
	d, fails := time.Duration(p.rng.Int64N(int64(8*time.Millisecond))), p.rng.IntN(10) == 0
	p.mu.Unlock()
	err := sleep(ctx, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errSim // counted by kill
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
