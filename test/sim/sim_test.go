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
	if first == 0 {
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

// onceFailed are seeds that found a bug, by what it was. They go on drawing
// what they drew then for as long as the drawing stays the same.
var onceFailed = []struct {
	seed uint64
	bug  string
}{
	{476, "an inbox that drained while the connection broke stayed subscribed at the server"},
	{486, "the same, with an overflow consumer and two streams on one Subscription"},
	{457, "more pulls than MaxWaiting, which the server dropped without a word"},
	{101738, "a Next shared the pull of a Fetch that the server was to refuse"},
	{100721, "a pull with MaxBytes seemed used up, for the pin ids were counted"},
	{108392, "the same, where the status came before the message"},
	{114321, "what Consume had read ahead went to the next call in the order of a map"},
	{18, "ack policy all: an acknowledgement covered a message that came again behind it"},
	{230, "ack policy all: a handled message was left to its AckWait"},
	{105986, "ack policy all: a handled message that waited for one before it was not kept alive"},
	{504251253381, "ack policy all: what a crashed server numbered below its ack floor was kept alive for ever"},
	{504251286959, "a key went on although its failed message waited for an overflow"},
	{504251309400, "the check took no account of last deliveries that are handled after the end"},
	{199885848974, "ack policy all: what a crashed server numbered below its ack floor was not handled before it was above"},
	{199885818515, "the check missed that a copy takes the place of a message that waits for its key"},
	{199885859658, "the check missed that a crashed server takes no acknowledgement of what it forgot"},
	{55462945740, "ack policy none: the check took what a new leader delivers again for an order of its own"},
}

// TestSeedsThatOnceFailed runs them, several times each because the Go
// scheduler decides too.
func TestSeedsThatOnceFailed(t *testing.T) {
	const times = 5
	var given atomic.Int64
	runPool(t, ownBinary(t), len(onceFailed)+1, func() (uint64, bool) {
		n := int(given.Add(1)-1) / times
		if n >= len(onceFailed) {
			return 0, false
		}
		return onceFailed[n].seed, true
	})
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
