package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

var (
	firstSeed  = flag.Uint64("sim.seed", 0, "seed of the first schedule; 0 draws one")
	seedCount  = flag.Int("sim.count", 150, "how many schedules to run, each with the next seed")
	duration   = flag.Duration("sim.duration", 0, "fail unless all schedules have run within this time; 0 is no limit")
	repeat     = flag.Int("sim.repeat", 1, "how often to run each seed")
	reportMost = flag.Int("sim.reports", 3, "stop after this many seeds that fail")
	everything = flag.Bool("sim.everything", false, "print the whole history of a seed that fails, not only what concerns the messages in question")
	plantBugs  = flag.Bool("sim.planted", false, "plant bugs into the client and show that they are found")
	asWorker   = flag.Bool("sim.worker", false, "be a worker process (for the tests themselves)")
)

// TestSimulation runs schedules from a seed on.
func TestSimulation(t *testing.T) {
	first := *firstSeed
	switch {
	case first != 0:
	case testing.Short():
		first = 20000 // in ci the same each time
	default:
		first = rand.Uint64N(1 << 40)
	}
	t.Logf("seeds from %d", first)
	var given atomic.Int64
	total := int64(*seedCount * *repeat)
	started := time.Now()
	res := runPool(t, ownBinary(t), *reportMost, func() (uint64, bool) {
		n := given.Add(1) - 1
		late := *duration > 0 && time.Since(started) > *duration
		return first + uint64(n)/uint64(*repeat), n < total && !late
	})
	took := time.Since(started)
	t.Logf("%d schedules in %v, %.0f a minute on %d CPUs: %+v", res.ran, took.Round(time.Millisecond),
		float64(res.ran)/took.Minutes(), runtime.GOMAXPROCS(0), res.counts)
	if !t.Failed() && int64(res.ran) < total {
		t.Errorf("only %d of %d schedules ran within %v", res.ran, total, *duration)
	}
}

// ownBinary is the test binary that runs.
func ownBinary(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("sim: where is the test binary: %v", err)
	}
	return exe
}

// result is what came of many seeds.
type result struct {
	ran    int
	counts counts
}

// progressEvery is after how many schedules a long run says how far it is.
const progressEvery = 10_000

// runPool runs seeds and fails the test for each that fails, up to a number.
func runPool(t *testing.T, exe string, most int, next func() (uint64, bool)) result {
	t.Helper()
	var res result
	failed := 0
	p := &pool{exe: exe, next: next, took: func(v verdict) bool {
		res.ran++
		res.counts.add(v.Counts)
		if res.ran%progressEvery == 0 {
			t.Logf("%d schedules ran", res.ran)
		}
		if len(v.Wrongs) == 0 {
			return true
		}
		failed++
		t.Error(failure(v))
		return failed < most
	}}
	p.run()
	return res
}

// failure is what a seed that failed prints.
func failure(v verdict) string {
	text := v.Report
	if text == "" {
		for _, w := range v.Wrongs {
			text += "WRONG " + w + "\n"
		}
	}
	return fmt.Sprintf("seed %d fails\n%s\nreplay: make sim SEED=%d COUNT=1 TESTARGS=-sim.repeat=20", v.Seed, text, v.Seed)
}
