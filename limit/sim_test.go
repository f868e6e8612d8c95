package limit

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/lease"
)

var simulations = flag.Int("limit.count", 60, "schedules of TestSimulation")

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// fleet is a set of processes in virtual time. They handle as much as they can while they are killed, stopped and cut off.
type fleet struct {
	s     *server
	cfg   Config
	keys  []string
	plant func(l *Limiter) // plants a bug into the first process
	begun time.Time

	planted bool
	mu      sync.Mutex
	past    []handling
}

type process struct {
	f       *fleet
	l       *Limiter
	link    *link
	ctx     context.Context
	kill    context.CancelFunc
	workers sync.WaitGroup
	mu      sync.Mutex
	ahead   lease.Moment  // of its clocks
	asleep  *lease.Moment // when its monotonic clock stopped; nil: it runs
}

func (f *fleet) now() time.Duration { return time.Since(f.begun) }

func (f *fleet) start(work time.Duration, workers int) *process {
	p := &process{f: f, link: f.s.link()}
	p.ctx, p.kill = context.WithCancel(context.Background())
	for p.l == nil {
		ctx, cancel := context.WithTimeout(p.ctx, time.Second)
		p.l, _ = prepare(ctx, p.link, "calls", f.cfg)
		cancel()
	}
	p.l.clock = func() lease.Moment {
		p.mu.Lock()
		defer p.mu.Unlock()
		now := lease.Now()
		mono := now.Mono
		if p.asleep != nil {
			mono = p.asleep.Mono
		}
		return lease.Moment{Mono: mono + p.ahead.Mono, Wall: now.Wall + p.ahead.Wall}
	}
	if f.plant != nil && !f.planted {
		f.planted = true
		f.plant(p.l)
	}
	p.l.tasks.Go(p.l.follow)
	for n := range workers {
		draw := rand.New(rand.NewPCG(uint64(n), uint64(f.now())))
		p.workers.Go(func() { p.work(draw, work) })
	}
	return p
}

// work handles messages. A stop of the process can come between Acquire and the handler.
func (p *process) work(draw *rand.Rand, work time.Duration) {
	for p.ctx.Err() == nil {
		key := p.f.keys[draw.IntN(len(p.f.keys))]
		p.link.pause()
		ctx, cancel := context.WithTimeout(p.ctx, time.Duration(draw.Int64N(int64(5*time.Second))))
		release, err := p.l.Acquire(ctx, key)
		cancel()
		if err != nil {
			continue
		}
		allowed := p.f.now()
		p.link.pause()
		if p.f.now()-allowed > p.f.cfg.TTL/2 { // the exception
			release()
			continue
		}
		ctx, cancel = p.l.Context(p.ctx, key)
		if ctx.Err() == nil {
			h := handling{key: key, begin: p.f.now()}
			sleep(ctx, time.Duration(draw.Int64N(int64(work))+1))
			h.end = p.f.now()
			p.f.mu.Lock()
			p.f.past = append(p.f.past, h)
			p.f.mu.Unlock()
		}
		cancel()
		p.link.pause()
		release()
		if draw.IntN(50) == 0 {
			sleep(p.ctx, time.Duration(draw.Int64N(int64(2*time.Second))))
		}
	}
}

// die is kill -9.
func (p *process) die() {
	p.kill()
	p.l.stop()
	p.goOn()
	p.workers.Wait()
	p.l.tasks.Wait()
	p.f.s.unlink(p.link)
}

func (p *process) freeze() {
	p.f.s.mu.Lock()
	defer p.f.s.mu.Unlock()
	if p.link.stopped == nil {
		p.link.stopped = make(chan struct{})
	}
}

func (p *process) goOn() {
	p.f.s.mu.Lock()
	defer p.f.s.mu.Unlock()
	if p.link.stopped != nil {
		close(p.link.stopped)
		p.link.stopped = nil
	}
}

func (p *process) cut(on bool) {
	p.f.s.mu.Lock()
	defer p.f.s.mu.Unlock()
	p.link.cut = on
}

// simulate runs one schedule. It returns the judge's findings, and how many handlers ran.
func simulate(t *testing.T, seed uint64, plant func(f *fleet, draw *rand.Rand)) (faults []string, begins int) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		draw := rand.New(rand.NewPCG(seed, 7))
		f := &fleet{s: newServer(seed), begun: time.Now(), keys: []string{"", "a key / of any .> form", "c"}[:1+draw.IntN(3)]}
		f.cfg.TTL = time.Duration(1+draw.IntN(3)) * time.Second
		if draw.IntN(4) > 0 {
			f.cfg.Rate = []int{1, 3, 20, 100, 400}[draw.IntN(5)]
			f.cfg.Window = []time.Duration{100 * time.Millisecond, time.Second, 4 * time.Second}[draw.IntN(3)]
		}
		if f.cfg.Rate == 0 || draw.IntN(2) == 0 {
			f.cfg.Concurrent = []int{1, 2, 5}[draw.IntN(3)]
		}
		f.s.lossy = draw.IntN(2) * draw.IntN(6)
		if plant != nil {
			plant(f, draw)
		}
		work := []time.Duration{10 * time.Millisecond, 60 * time.Millisecond, 700 * time.Millisecond, 4 * time.Second}[draw.IntN(4)]
		var ps []*process
		for range 2 + draw.IntN(3) {
			ps = append(ps, f.start(work, 1+draw.IntN(6)))
		}
		for range 12 {
			f.fault(draw, ps, work)
		}
		for _, p := range ps {
			p.goOn()
			p.cut(false)
			p.die()
		}
		faults, begins = judge(f.past, f.cfg), len(f.past)
		if len(faults) > 0 {
			faults = append(faults, fmt.Sprintf("seed %d, %v", seed, &f.cfg))
		}
		time.Sleep(5 * time.Second) // requests that were lost arrive
	})
	return faults, begins
}

func (f *fleet) fault(draw *rand.Rand, ps []*process, work time.Duration) {
	n := draw.IntN(len(ps))
	p := ps[n]
	long := time.Duration(draw.Int64N(int64(2 * f.cfg.TTL)))
	switch draw.IntN(6) {
	case 0:
		p.die()
		ps[n] = f.start(work, 1+draw.IntN(6))
	case 1:
		p.freeze()
		time.Sleep(long)
		p.goOn()
	case 2:
		for _, p := range ps {
			p.cut(draw.IntN(2) == 0)
		}
		time.Sleep(long)
		for _, p := range ps {
			p.cut(false)
		}
	case 3: // its clock is set
		p.mu.Lock()
		p.ahead.Wall += time.Duration(draw.IntN(3)-1) * 10 * time.Minute
		p.mu.Unlock()
	case 4: // the machine sleeps
		p.freeze()
		p.mu.Lock()
		slept := lease.Now()
		p.asleep = &slept
		p.mu.Unlock()
		time.Sleep(long)
		p.mu.Lock()
		p.ahead.Mono, p.asleep = p.ahead.Mono-(lease.Now().Mono-slept.Mono), nil
		p.mu.Unlock()
		p.goOn()
	case 5:
		f.s.put(bucketKey("calls", f.keys[0]), []byte([]string{"", "{", `{"used":[{"n":-1}]}`, `{"holders":[{"id":"x","run":99999999999}]}`}[draw.IntN(4)]))
	}
	time.Sleep(time.Duration(draw.Int64N(int64(3 * time.Second))))
}

// TestSimulation runs the real code on a model of the bucket.
func TestSimulation(t *testing.T) {
	total := 0
	for seed := range *simulations {
		faults, begins := simulate(t, uint64(seed), nil)
		require.Empty(t, faults)
		require.Positive(t, begins, "seed %d", seed)
		if *simulations < 10 {
			t.Logf("seed %d: %d handlers", seed, begins)
		}
		total += begins
	}
	t.Logf("%d handlers in %d schedules", total, *simulations)
}

// TestSimulationFindsPlantedBugs: each bug shows within some schedules.
func TestSimulationFindsPlantedBugs(t *testing.T) {
	for name, plant := range map[string]func(f *fleet, draw *rand.Rand){
		"a write that another process was ahead of is stored": func(f *fleet, _ *rand.Rand) { f.s.loose = true },
		"a lease outlasts the TTL of others":                  func(f *fleet, _ *rand.Rand) { f.plant = func(l *Limiter) { l.cfg.TTL *= 3 } },
		"a window ends early":                                 func(f *fleet, _ *rand.Rand) { f.plant = func(l *Limiter) { l.cfg.Window /= 2 } },
		"a clock is fast": func(f *fleet, _ *rand.Rand) {
			f.plant = func(l *Limiter) {
				right, begun := l.clock, l.clock()
				l.clock = func() lease.Moment {
					now := right()
					return lease.Moment{Mono: now.Mono + (now.Mono - begun.Mono), Wall: now.Wall}
				}
			}
		},
	} {
		found := false
		for seed := uint64(0); seed < 200 && !found; seed++ {
			faults, _ := simulate(t, seed, plant)
			found = len(faults) > 0
		}
		require.True(t, found, name)
	}
}
