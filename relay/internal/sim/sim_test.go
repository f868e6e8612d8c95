// Package sim is the simulation of the relay's workers: its tests run them, with their store, against an embedded server
// in virtual time, each schedule in a testing/synctest bubble of its own.
//
// A seed draws receivers, what senders hand in and how often, the latency and the answer of each request, which requests
// and answers get lost, when which of one to three processes stops, dies, or dies at a named point between two
// writes, and when an operator unpins a receiver. When all that is over, everything is worked off, and package history
// says what is wrong with the run.
//
// A seed that fails is printed with the command that replays it. It draws the same plan, requests and answers; the Go
// scheduler may still take events of one instant in another order.
package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
)

var (
	firstSeed = flag.Uint64("sim.seed", 0, "seed of the first schedule; 0: 1 in short runs, and drawn otherwise")
	seedCount = flag.Int("sim.count", 0, "how many schedules to run, each with the next seed; 0: 20 in short runs, 500 otherwise")
	mostWrong = flag.Int("sim.reports", 3, "stop after this many seeds that fail")
	plantBugs = flag.Bool("sim.planted", false, "plant bugs into the relay and show that they are found")
)

// TestSimulation runs schedules, beginning with a seed.
func TestSimulation(t *testing.T) {
	first, count := *firstSeed, *seedCount
	switch {
	case first != 0:
	case testing.Short():
		first = 1
	default:
		first = rand.Uint64N(1 << 40)
	}
	switch {
	case count != 0:
	case testing.Short():
		count = 20
	default:
		count = 500
	}
	// In a bubble hardly two goroutines run at a time: a second processor makes it a third slower.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	// The server has a ticker for the process. If it began in a bubble, no time would pass there.
	ats.Register()
	defer ats.Unregister()
	t.Logf("seeds from %d", first)
	begin, failed := time.Now(), 0
	var sum struct{ messages, redriven, kills, crashes, doubles, reportedAgain int }
	for seed := first; seed < first+uint64(count); seed++ {
		w, tally, wrongs := simulate(t, seed)
		sum.messages += len(w.run.Ends)
		for _, times := range w.run.Redriven {
			sum.redriven += times
		}
		sum.kills += w.kills
		sum.crashes += w.crashes
		sum.doubles += tally.Doubles
		sum.reportedAgain += tally.ReportedAgain
		if len(wrongs) == 0 {
			continue
		}
		t.Errorf("seed %d fails: %s\nreplay: go test ./relay/internal/sim -run TestSimulation -sim.seed %d -sim.count 1 -v", seed, text(wrongs), seed)
		if failed++; failed == *mostWrong {
			break
		}
	}
	t.Logf("%d schedules in %v: %+v", count, time.Since(begin).Round(time.Millisecond), sum)
}

func text(wrongs []string) (s string) {
	for _, wrong := range wrongs {
		s += "\n\t" + wrong
	}
	return s
}

// endsWithin is far more than a schedule takes. Processes that take something from each other without end let no virtual time pass.
const endsWithin = 3 * time.Minute

// simulate runs one schedule.
func simulate(t *testing.T, seed uint64) (w *world, tally relayhistory.Tally, wrongs []string) {
	natstest.EmptyTimerPool()
	defer time.AfterFunc(endsWithin, func() {
		fmt.Printf("seed %d fails: its processes go on without end\n", seed)
		os.Exit(1)
	}).Stop()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed)
		w.play()
		wrongs = w.calm()
		w.close()
		if len(wrongs) == 0 {
			tally, wrongs = w.run.Check()
		}
	})
	if testing.Verbose() && len(wrongs) > 0 {
		fmt.Println(w.log.String())
	}
	return w, tally, wrongs
}
