package feed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

var (
	simSeed    = flag.Uint64("feed.seed", 0, "seed of the first schedule; 0: 1 with -short, otherwise drawn")
	simCount   = flag.Int("feed.count", 0, "how many schedules to simulate, each with the next seed; 0: 300 with -short, otherwise 1000")
	simPlanted = flag.Bool("feed.planted", false, "plant bugs and show that they are found")
)

const (
	simLease = time.Second
	// simFaults is how long there are faults, and simLimit how long all may take, in virtual time.
	simFaults = 6 * time.Second
	simLimit  = 5 * time.Minute
	// foundWithin is in how many seeds a planted bug has to be found.
	foundWithin = 500
)

var (
	errDead = errors.New("the process is dead")
	errLink = errors.New("the connection broke")
)

// simulation is one schedule: watchers and inserters on a model of the database, in virtual time. How long each
// statement and handler takes, and what befalls it, is drawn from the seed and from what it is, so that the same seed
// gives the same schedule.
type simulation struct {
	*model
	seed   uint64
	faulty bool
	limits []Limit // of the gates 0 and 1
	meter  *meter

	logMu sync.Mutex
	log   []event
}

// process is a watcher or an inserter in a simulation.
type process struct {
	*simulation
	name   string
	dead   chan struct{}
	stalls [][2]time.Time

	callsMu sync.Mutex
	calls   map[string]int
}

func (s *simulation) process(name string) *process {
	return &process{simulation: s, name: name, dead: make(chan struct{}), calls: map[string]int{}}
}

// draw is for the next call of what has this name.
func (p *process) draw(name string) *rand.Rand {
	p.callsMu.Lock()
	p.calls[name]++
	n := p.calls[name]
	p.callsMu.Unlock()
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %s %d", p.name, name, n) // a hash takes all
	return rand.New(rand.NewPCG(p.seed, h.Sum64()))
}

// sleep takes that long, and longer if the process is stopped meanwhile. A dead process does nothing any more.
func (p *process) sleep(ctx context.Context, d time.Duration) error {
	wait := func(d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-p.dead:
			return errDead
		}
	}
	if err := wait(d); err != nil {
		return err
	}
	for _, stall := range p.stalls {
		if now := time.Now(); now.After(stall[0]) && now.Before(stall[1]) {
			// The order in which the goroutines of a process go on is drawn, too.
			return wait(stall[1].Sub(now) + time.Duration(p.draw("resume").Int64N(int64(time.Millisecond))))
		}
	}
	return nil
}

func (p *process) statement(ctx context.Context, name string) error {
	r := p.draw(name)
	took := time.Duration(r.Int64N(int64(20 * time.Millisecond)))
	if p.disturbed() && r.IntN(60) == 0 {
		took += time.Duration(r.Int64N(int64(2 * simLease)))
	}
	if err := p.sleep(ctx, took); err != nil {
		return err
	}
	if p.disturbed() && r.IntN(60) == 0 {
		return errLink
	}
	return nil
}

func (p *process) answer(name string) error {
	if p.disturbed() && p.draw("answer of "+name).IntN(30) == 0 {
		return errLink
	}
	return nil
}

var simBegin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a synctest bubble

func (p *process) disturbed() bool { return p.faulty && time.Since(simBegin) < simFaults }

func (p *process) client() *client {
	skew := time.Duration(p.draw("skew").Int64N(int64(4*simLease))) - 2*simLease
	return &client{model: p.model, skew: skew, statement: p.statement, answer: p.answer}
}

func (p *process) note(e event) error {
	// Handlers that begin at the same instant are noted one after the other.
	took := p.draw(fmt.Sprint("note ", e.what, e.partition, e.item)).Int64N(int64(100 * time.Microsecond))
	if err := p.sleep(context.Background(), time.Duration(took)); err != nil {
		return err
	}
	e.owner = p.name
	p.logMu.Lock()
	defer p.logMu.Unlock()
	p.log = append(p.log, e)
	return nil
}

// Process is a handler that takes a while, and ends in one of the ways in which handlers end.
func (p *process) Process(ctx context.Context, it Item) (Response, error) {
	r := p.draw(fmt.Sprint("handler ", it.Partition, it.ID, it.Version))
	took := time.Duration(r.Int64N(int64(50 * time.Millisecond)))
	if r.IntN(15) == 0 {
		took += time.Duration(r.Int64N(int64(3 * simLease)))
	}
	p.meter.note(1, it)
	defer p.meter.note(-1, it)
	if r.IntN(2) == 0 {
		ctx = context.WithoutCancel(ctx) // it does not listen
	}
	if err := p.sleep(ctx, took); err != nil {
		return Response{}, err
	}
	switch what := r.IntN(12); {
	case it.Version > 6 || what > 4:
		return done()
	case what > 2:
		return Response{}, errors.New("failed")
	case what > 0 && it.Gate < 3:
		return toGate(it.Gate + what)
	}
	return Response{}, nil
}

// watch runs a watcher until the process dies or stop is called.
func (p *process) watch(concurrency, partitions int, steal bool) (stop func()) {
	opts := append(quick(), Concurrency(concurrency), Lease(simLease), Poll(50*time.Millisecond, 500*time.Millisecond), AutoClose(), MaxRetries(-1),
		MaxPartitions(partitions), Requeue(30*time.Millisecond), DrainTimeout(0), Backoff(func(int) time.Duration { return 20 * time.Millisecond }),
		Limits(p.limits...), func(c *config) {
			if c.Steal = steal; p.seed%3 == 0 {
				c.MaxCrashes = 1000 // begins are stored, and no item is given up
			}
			c.Jitter = func(d time.Duration) time.Duration { return d + time.Duration(p.draw("jitter").Int64N(int64(d/4))) }
		})
	w := recorded(p.client(), p, p.note, opts...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	return func() { cancel(); <-ended }
}

// insert adds items one by one, at the partition's gate or above, and returns how many were taken.
func (p *process) insert(partition string, n int) (taken int) {
	c := p.client()
	r := p.draw("insert")
	gate := 0
	for i := range n {
		_ = p.sleep(context.Background(), time.Duration(r.Int64N(int64(300*time.Millisecond))))
		it := Item{ID: fmt.Sprint(p.name, i), Gate: gate + r.IntN(3)}
		for {
			err := c.insert(context.Background(), partition, it)
			if err == nil || errors.Is(err, ErrDuplicate) {
				taken++
				break
			}
			if errors.Is(err, ErrGatePassed) {
				it.Gate++
				gate = it.Gate
			}
		}
	}
	return taken
}

// run is the whole schedule. It returns what was wrong.
func (s *simulation) run() (wrong []string) {
	r := rand.New(rand.NewPCG(s.seed, 0))
	s.faulty = r.IntN(4) > 0
	concurrency, most, steal := 1+r.IntN(4), 1+r.IntN(3), r.IntN(3) == 0
	s.drawLimits()
	var taken atomic.Int64
	var inserters sync.WaitGroup
	partitions := 1 + r.IntN(3)
	for i := range partitions {
		id := fmt.Sprint("p", i)
		admin := s.process("admin of " + id)
		admin.client().create(Partition{ID: id})
		var wg sync.WaitGroup
		for j := range 1 + r.IntN(2) {
			n, p := 2+r.IntN(6), s.process(fmt.Sprint("i", i, j, "-"))
			wg.Go(func() { taken.Add(int64(p.insert(id, n))) })
		}
		inserters.Go(func() {
			wg.Wait()
			for admin.client().seal(context.Background(), id) != nil {
			}
		})
	}
	var watchers sync.WaitGroup
	over := make(chan struct{})
	for i := range 2 + r.IntN(2) {
		lives := rand.New(rand.NewPCG(s.seed, uint64(i+1)))
		watchers.Go(func() { s.lives(lives, i, over, concurrency, most, steal) })
	}
	for !s.allComplete() && time.Since(simBegin) < simLimit {
		time.Sleep(100 * time.Millisecond)
	}
	if !s.allComplete() {
		wrong = append(wrong, fmt.Sprintf("not complete after %v", simLimit))
	}
	close(over)
	watchers.Wait()
	inserters.Wait()
	time.Sleep(10 * simLease) // handlers may outlive their watcher
	synctest.Wait()
	found, repeats, takeovers := audit(s.log, s.changes, concurrency)
	wrong = append(wrong, found...)
	if !s.faulty && repeats+takeovers > 0 {
		wrong = append(wrong, fmt.Sprintf("%d repeats and %d leases taken over without a fault", repeats, takeovers))
	}
	wrong = append(wrong, s.overLimits()...)
	n := 0
	for _, list := range s.items {
		n += len(list)
	}
	if int64(n) != taken.Load() {
		wrong = append(wrong, fmt.Sprintf("%d items of which %d were taken", n, taken.Load()))
	}
	return wrong
}

// drawLimits gives every other schedule limits, which are no part of the others.
func (s *simulation) drawLimits() {
	s.meter = newMeter(0)
	r := rand.New(rand.NewPCG(s.seed, 1<<32))
	for gate := range 2 {
		if s.seed%2 == 0 {
			s.limits = append(s.limits, Limit{Gate: gate, Concurrency: 1 + r.IntN(3), Rate: 2 + r.IntN(5), Per: time.Second})
		}
	}
}

// overLimits are the limits that were exceeded: a rate in any window, and a concurrency where no fault lets a handler outlive its share.
func (s *simulation) overLimits() (wrong []string) {
	for _, l := range s.limits {
		key := fmt.Sprint("gate ", l.Gate)
		if over := overRate(s.meter.begun[key], l.Rate, l.Per); over != "" {
			wrong = append(wrong, key+": "+over)
		}
		if n := s.meter.most[key]; n > l.Concurrency && !s.faulty {
			wrong = append(wrong, fmt.Sprintf("%s: %d at once of %d", key, n, l.Concurrency))
		}
	}
	return wrong
}

// lives is a watcher that is stopped at times, and dies and comes again, until the end.
func (s *simulation) lives(r *rand.Rand, i int, over chan struct{}, concurrency, most int, steal bool) {
	for life := 0; ; life++ {
		p := s.process(fmt.Sprintf("w%d.%d", i, life))
		dies := make(<-chan time.Time)
		if left := simFaults - time.Since(simBegin); s.faulty && left > 0 {
			for range r.IntN(3) {
				from := time.Now().Add(time.Duration(r.Int64N(int64(left))))
				p.stalls = append(p.stalls, [2]time.Time{from, from.Add(time.Duration(r.Int64N(int64(3 * simLease))))})
			}
			if r.IntN(2) == 0 {
				dies = time.After(time.Duration(r.Int64N(int64(left))))
			}
		}
		time.Sleep(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
		stop := p.watch(concurrency, most, steal)
		select {
		case <-dies:
			close(p.dead)
			stop()
		case <-over:
			stop()
			return
		}
	}
}

func (s *simulation) allComplete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partitions {
		if p.Status != sqlstore.Complete {
			return false
		}
	}
	return true
}

// simulate runs a seed and returns what was wrong, and the history in words.
func simulate(t *testing.T, seed uint64, planted string) (wrong []string, history string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		s := &simulation{model: newModel(time.Now), seed: seed}
		s.planted = planted
		wrong = s.run()
		var b strings.Builder
		for _, e := range s.log {
			fmt.Fprintln(&b, e)
		}
		for _, c := range s.changes {
			c.Was, c.Status = "", "" // an owner's UUID is another each time
			fmt.Fprintln(&b, c)
		}
		history = b.String()
	})
	return wrong, history
}

// seeds calls f with seeds from first on, by as many goroutines as there are processors, until it has been called
// count times or returns false.
func seeds(t *testing.T, first uint64, count int, f func(t *testing.T, seed uint64) bool) {
	var given atomic.Uint64
	var stop atomic.Bool
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for !stop.Load() {
					n := given.Add(1) - 1
					if n >= uint64(count) {
						return
					}
					if !f(t, first+n) {
						stop.Store(true)
					}
				}
			})
		}
	})
}

// TestSimulation runs schedules from a seed on.
func TestSimulation(t *testing.T) {
	first := *simSeed
	if first == 0 {
		first = 1
		if !testing.Short() {
			first = rand.Uint64N(1 << 40)
		}
	}
	count := *simCount
	if count == 0 {
		count = 1000
		if testing.Short() {
			count = 300
		}
	}
	t.Logf("%d schedules from seed %d on", count, first)
	seeds(t, first, count, func(t *testing.T, seed uint64) bool {
		wrong, history := simulate(t, seed, "")
		if len(wrong) > 0 {
			t.Errorf("seed %d: %s\n%s\nreplay: go test ./feed -run TestSimulation -feed.count 1 -feed.seed %d", seed, strings.Join(wrong, "\n"), history, seed)
		}
		return len(wrong) == 0
	})
}

// TestSimulationRepeats: a seed is a schedule, but for the rare one in which an engine has two things to do at the same
// instant.
func TestSimulationRepeats(t *testing.T) {
	var differ []uint64
	for seed := range uint64(50) {
		_, first := simulate(t, seed+1, "")
		_, second := simulate(t, seed+1, "")
		if first != second {
			differ = append(differ, seed+1)
		}
	}
	require.LessOrEqual(t, len(differ), 5, "seeds %v", differ)
}

// TestPlantedBugs: the simulation finds each.
func TestPlantedBugs(t *testing.T) {
	if !*simPlanted {
		t.Skip("make nightly plants them")
	}
	for _, bug := range []string{noGateLock, noEpoch, localClock} {
		t.Run(bug, func(t *testing.T) {
			var found sync.Map
			seeds(t, 1, foundWithin, func(t *testing.T, seed uint64) bool {
				wrong, _ := simulate(t, seed, bug)
				if len(wrong) > 0 {
					found.Store(seed, wrong[0])
				}
				return len(wrong) == 0
			})
			n := 0
			found.Range(func(seed, wrong any) bool {
				t.Logf("found by seed %d: %s", seed, wrong)
				n++
				return true
			})
			require.NotZero(t, n, "%d seeds did not find it", foundWithin)
		})
	}
}
