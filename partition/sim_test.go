package partition

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

var (
	simCount = flag.Int("partition.count", 300, "schedules of TestSimulation")
	simSeed  = flag.Uint64("partition.seed", 1, "the first seed of TestSimulation")
)

// plant is a bug for the simulation to find.
type plant string

const (
	noReset      plant = "no reset"
	wrongReset   plant = "reset of the wrong partition"
	samePin      plant = "pin not taken from the predecessor"
	lostDelivery plant = "a lost delivery that is not noticed"
	earlyRemoval plant = "a member that is removed before its TTL is over"
	noGather     plant = "what was handed back is not put in order"
	staleView    plant = "a stale view of the record, and no compare-and-swap"
	sleepsLease  plant = "a lease that outlasts a sleep"
	leaveWaits   plant = "a leave that waits"
)

// simMember is a process with a member that runs.
type simMember struct {
	*process
	stop    context.CancelFunc
	leaving bool
	left    chan struct{} // closed when its Consume has returned err
	err     error
}

func (w *world) join(ctx context.Context, name string) *simMember {
	p := &process{world: w, name: name, own: map[string]int{}, working: map[int]int{}}
	ctx, stop := context.WithCancel(ctx)
	s := &simMember{process: p, stop: stop, left: make(chan struct{})}
	o, err := newOptions([]Option{Member(name), Logger(slog.New(slog.DiscardHandler))})
	if err != nil {
		panic(err)
	}
	cfg := Config{Name: "sim", Partitions: len(w.parts), TTL: time.Second, AckWait: simAckWait}
	if w.plant == earlyRemoval && name == "p0" {
		cfg.TTL /= 4
	}
	m := newMember(&Set{cfg: cfg, resets: w.resets}, o, p.work)
	m.table, m.clock = p, p.clock
	m.consumer = func(n int) consumer { return &simSession{simConsumer: &simConsumer{p, n}, part: p.parts[n]} }
	w.mu.Lock()
	w.ears[p] = m.hear
	w.mu.Unlock()
	go func() {
		defer close(s.left)
		s.err = m.run(ctx)
		w.mu.Lock()
		delete(w.ears, p)
		w.mu.Unlock()
	}()
	return s
}

// simulation is one schedule.
type simulation struct {
	*world
	ctx        context.Context
	alive, all []*simMember
	total      int
}

func newSimulation(ctx context.Context, seed uint64, bug plant) *simulation {
	rng := rand.New(rand.NewPCG(seed, 1))
	partitions, keys, each := 1+rng.IntN(6), 1+rng.IntN(12), 5+rng.IntN(30)
	w := &world{
		rng: rng, plant: bug, start: time.Now(), resets: rng.IntN(5) > 0, next: map[string]int{}, busy: map[string]int{},
		ears: map[*process]func(string, []byte){}, keys: map[string]*jetstream.RawStreamMsg{}, parts: make([]*simPart, partitions),
	}
	for n := range w.parts {
		w.parts[n] = &simPart{settled: map[uint64]bool{}, pending: map[uint64]time.Time{}, next: 1}
	}
	for number := range each {
		for k := range keys {
			key := fmt.Sprint("k", k)
			s := w.parts[Of(key, partitions)]
			s.keys, s.numbers = append(s.keys, key), append(s.numbers, number)
		}
	}
	first, err := json.Marshal(newRecord(partitions))
	if err != nil {
		panic(err)
	}
	w.revision, w.keys[recordKey] = 1, &jetstream.RawStreamMsg{Data: first, Sequence: 1}
	return &simulation{world: w, ctx: ctx, total: keys * each}
}

func (s *simulation) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *simulation) add() {
	m := s.join(s.ctx, fmt.Sprint("p", len(s.all)))
	s.mu.Lock() // unowned reads them
	defer s.mu.Unlock()
	s.alive, s.all = append(s.alive, m), append(s.all, m)
}

// cut disconnects processes for a while.
func (s *simulation) cut(ps []*simMember, d time.Duration, also func()) {
	cut := make(chan struct{})
	s.mu.Lock()
	for _, p := range ps {
		p.cut = cut
		p.breaks++
	}
	also()
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
	for _, p := range ps {
		p.cut = nil
	}
	s.mu.Unlock()
	close(cut)
}

// nap makes the machine of a process sleep. Its connection returns some time after it has woken up.
func (s *simulation) nap(p *simMember, d time.Duration) {
	now, cut, reconnect := p.clock(), make(chan struct{}), time.Duration(s.draw(400))*time.Millisecond
	s.mu.Lock()
	p.asleep, p.cut = &now, cut
	p.breaks++
	p.naps++
	p.stopped()
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
	p.asleep = nil
	p.slept += d
	s.mu.Unlock()
	time.Sleep(reconnect)
	s.mu.Lock()
	p.cut = nil
	s.mu.Unlock()
	close(cut)
}

// step is one event.
func (s *simulation) step() {
	time.Sleep(time.Duration(s.draw(300)) * time.Millisecond)
	i := s.draw(max(1, len(s.alive)))
	gone := func() *simMember {
		m := s.alive[i]
		s.alive = slices.Delete(s.alive, i, i+1)
		return m
	}
	event := s.draw(10)
	s.mu.Lock()
	s.note("event %d with member %d of %d", event, i, len(s.alive))
	s.mu.Unlock()
	switch {
	case event < 2 || len(s.alive) == 0:
		s.add()
	case event < 4:
		m := gone()
		s.mu.Lock()
		m.leaving = true
		s.mu.Unlock()
		m.stop()
	case event == 4:
		m := gone()
		s.mu.Lock()
		m.dead = true
		m.stopped()
		s.mu.Unlock()
	case event == 5: // for longer than the TTL or not
		s.cut(s.alive[i:i+1], time.Duration(s.draw(2500))*time.Millisecond, func() {})
	case event < 9:
		s.nap(s.alive[i], time.Duration(500+s.draw(2500))*time.Millisecond)
	case event == 9:
		s.cut(s.alive, time.Duration(s.draw(1500))*time.Millisecond, func() {
			for _, part := range s.parts {
				part.restart()
			}
		})
	}
}

// unowned checks that while a member could take a partition, it has an owner, and not one that leaves and has no handler.
func (s *simulation) unowned(ctx context.Context) {
	since := make([]time.Time, len(s.parts))
	for sleep(ctx, 100*time.Millisecond) == nil {
		s.mu.Lock()
		now := s.record()
		for n := range s.parts {
			owner := nameOf(now.owner(n))
			idle := owner == ""
			able := false
			for _, p := range s.all {
				able = able || !p.dead && !p.leaving && p.cut == nil && p.asleep == nil
				idle = idle || p.name == owner && p.leaving && p.working[n] == 0
			}
			if !idle || !able {
				since[n] = time.Now()
			}
			if time.Since(since[n]) > 3*time.Second && !since[n].IsZero() {
				s.fault("partition %d: nobody works on it for 3s: %s", n, s.keys[recordKey].Data)
				since[n] = time.Now()
			}
		}
		s.mu.Unlock()
	}
}

// simulate runs one schedule: members join, leave, die, sleep and are cut off, and the server restarts, until all messages have been handled.
func simulate(t *testing.T, seed uint64, bug plant) (faults []string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSimulation(ctx, seed, bug)
		for range 1 + s.draw(3) {
			s.add()
		}
		watching, unwatch := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() { defer close(watched); s.unowned(watching) }()
		for range 3 + s.draw(6) {
			s.step()
		}
		if len(s.alive) == 0 {
			s.add()
		}
		deadline := time.Now().Add(5 * time.Minute)
		for {
			s.mu.Lock()
			done := s.done
			s.mu.Unlock()
			if done == s.total {
				break
			}
			if time.Now().After(deadline) {
				s.mu.Lock()
				s.fault("%d of %d messages were handled: %s", done, s.total, s.keys[recordKey].Data)
				s.mu.Unlock()
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		unwatch()
		<-watched
		for _, m := range s.alive {
			s.mu.Lock()
			m.leaving = true
			s.mu.Unlock()
			m.stop()
			if <-m.left; m.err != nil {
				s.mu.Lock()
				s.fault("%s: %v", m.name, m.err)
				s.mu.Unlock()
			}
		}
		cancel()
		for _, m := range s.all {
			<-m.left
		}
		if faults = s.faults; len(faults) > 0 && bug == "" {
			t.Log(strings.Join(s.history, "\n"))
		}
	})
	return faults
}

// Members on a model of the server keep the order of each key, lose no message, and come to rest.
func TestSimulation(t *testing.T) {
	for seed := range uint64(*simCount) {
		if faults := simulate(t, *simSeed+seed, ""); len(faults) > 0 {
			t.Fatalf("seed %d: %d faults, first: %q", *simSeed+seed, len(faults), faults[:min(5, len(faults))])
		}
	}
}

// The simulation finds each planted bug within 200 seeds.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("it looks for the simulation's faults, and takes longer than the simulation")
	}
	for _, bug := range []plant{noReset, wrongReset, samePin, lostDelivery, earlyRemoval, noGather, staleView, sleepsLease, leaveWaits} {
		t.Run(string(bug), func(t *testing.T) {
			for seed := range uint64(200) {
				if faults := simulate(t, seed, bug); len(faults) > 0 {
					t.Logf("seed %d: %s", seed, faults[0])
					return
				}
			}
			require.Fail(t, "not found")
		})
	}
}
