package partition

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
	otherMember  plant = "assignment that differs between members"
	lostDelivery plant = "a lost delivery that is not noticed"
	earlyDelete  plant = "a member whose key is deleted before its TTL is over"
)

// simMember is a process with a member that runs.
type simMember struct {
	*process
	stop context.CancelFunc
	left chan struct{} // closed when its Consume has returned err
	err  error
}

func (w *world) start(ctx context.Context, name string, partitions int) *simMember {
	p := &process{world: w, name: name, own: map[string]int{}}
	ctx, stop := context.WithCancel(ctx)
	s := &simMember{process: p, stop: stop, left: make(chan struct{})}
	o, err := newOptions([]Option{Member(name)})
	if err != nil {
		panic(err)
	}
	m := &member{
		table: p, consume: p.consume, options: o, handler: p.work, ttl: time.Second, counts: new(counts),
		view: newView(partitions), ended: make(chan *run, partitions),
	}
	go func() {
		defer close(s.left)
		s.err = m.run(ctx)
	}()
	return s
}

// simulate runs one schedule: members join, leave, die and are cut off until all messages have been handled.
func simulate(t *testing.T, seed uint64, bug plant) (faults []string) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		partitions, keys, each := 1+rng.IntN(6), 1+rng.IntN(12), 5+rng.IntN(30)
		w := &world{
			rng: rng, plant: bug, keys: map[string]*simEntry{}, next: map[string]int{}, busy: map[string]int{},
			parts: make([]*simPart, partitions),
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
		ctx, cancel := context.WithCancel(t.Context())
		var alive, all []*simMember
		for range 1 + rng.IntN(3) {
			alive = append(alive, w.start(ctx, fmt.Sprint("p", len(alive)), partitions))
		}
		all = slices.Clone(alive)
		finished := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.done == keys*each
		}
		draw := func(n int) int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.rng.IntN(n)
		}
		for range 3 + draw(6) {
			time.Sleep(time.Duration(draw(300)) * time.Millisecond)
			i := draw(max(1, len(alive)))
			switch fault := draw(4); {
			case fault == 0 || len(alive) == 0:
				s := w.start(ctx, fmt.Sprint("p", len(all)), partitions)
				alive, all = append(alive, s), append(all, s)
			case fault == 1: // leaves
				alive[i].stop()
				alive = slices.Delete(alive, i, i+1)
			case fault == 2: // dies
				alive[i].kill()
				alive = slices.Delete(alive, i, i+1)
			case fault == 3: // is cut off, for longer than the TTL or not
				p, cut := alive[i].process, make(chan struct{})
				w.mu.Lock()
				p.cut = cut
				w.mu.Unlock()
				time.Sleep(time.Duration(draw(2500)) * time.Millisecond)
				w.mu.Lock()
				p.cut = nil
				w.mu.Unlock()
				close(cut)
			}
		}
		if len(alive) == 0 {
			s := w.start(ctx, fmt.Sprint("p", len(all)), partitions)
			alive, all = append(alive, s), append(all, s)
		}
		for deadline := time.Now().Add(5 * time.Minute); !finished(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				w.mu.Lock()
				w.faults = append(w.faults, fmt.Sprintf("%d of %d messages were handled", w.done, keys*each))
				for n, s := range w.parts {
					if len(s.settled) < len(s.keys) {
						w.faults = append(w.faults, fmt.Sprintf("partition %d: next %d of %d, pending %v, again %v, pin %v, settled %d, owner %s", n, s.next, len(s.keys), s.pending, s.again, s.pin != nil, len(s.settled), w.keys[fmt.Sprint(ownerPrefix, n)].value))
					}
				}
				for key, e := range w.keys {
					w.faults = append(w.faults, fmt.Sprintf("%s %v %s", key, e.op, e.value))
				}
				w.mu.Unlock()
				break
			}
		}
		for _, s := range alive {
			s.stop()
			if <-s.left; s.err != nil {
				w.mu.Lock()
				w.faults = append(w.faults, fmt.Sprintf("%s: %v", s.name, s.err))
				w.mu.Unlock()
			}
		}
		cancel()
		for _, s := range all {
			<-s.left
		}
		faults = w.faults
	})
	return faults
}

// kill ends a process: what it did not say before nobody hears.
func (s *simMember) kill() {
	s.mu.Lock()
	s.dead = true
	for key, n := range s.own {
		s.busy[key] -= n
	}
	s.mu.Unlock()
}

// Members over a model of the server keep the order of each key, lose nothing, and come to rest.
func TestSimulation(t *testing.T) {
	for seed := range uint64(*simCount) {
		if faults := simulate(t, *simSeed+seed, ""); len(faults) > 0 {
			t.Fatalf("seed %d: %d faults, first: %q", *simSeed+seed, len(faults), faults[:min(20, len(faults))])
		}
	}
}

// The simulation finds each planted bug within 200 seeds.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("it looks for the simulation's faults, and takes longer than the simulation")
	}
	for _, bug := range []plant{noReset, wrongReset, samePin, otherMember, lostDelivery, earlyDelete} {
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
