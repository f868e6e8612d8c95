package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

var (
	firstSeed  = flag.Uint64("sim.seed", 0, "seed of the first schedule; 0 draws one")
	seedCount  = flag.Int("sim.count", 150, "how many schedules to run, each with the next seed")
	duration   = flag.Duration("sim.duration", 0, "fail unless all schedules have run within this time; 0 is no limit")
	repeat     = flag.Int("sim.repeat", 1, "how often to run each seed")
	everything = flag.Bool("sim.everything", false, "print the whole history of a seed that fails, not only what concerns the messages in question")
	plantBugs  = flag.Bool("sim.planted", false, "plant bugs into the client and show that they are found")
	worker     = flag.String("sim.worker", "", "be a worker process, 0/2 or 1/2 of two (for the tests themselves)")
)

const (
	// seedWait is how long one schedule may take in real time. It takes milliseconds, on a busy machine seconds; one that
	// goes on for ever without time passing is found by this.
	seedWait = 2 * time.Minute
	// failuresMost is after how many seeds that fail a worker stops.
	failuresMost = 3
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
	started := time.Now()
	exe, err := os.Executable()
	require.NoError(t, err)
	for _, failure := range runWorkers(t, exe, first, *seedCount) {
		t.Error(failure)
	}
	total, took := *seedCount**repeat, time.Since(started)
	t.Logf("%d schedules from seed %d in %v, %.0f a minute on %d CPUs", total, first, took.Round(time.Millisecond),
		float64(total)/took.Minutes(), runtime.GOMAXPROCS(0))
}

// runWorkers runs seeds in worker processes, one for each CPU, and returns the output of those that have failed. When one has, the
// others are killed.
func runWorkers(t *testing.T, exe string, first uint64, count int) []string {
	t.Helper()
	n := runtime.GOMAXPROCS(0)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	outputs := make([]string, n)
	var workers sync.WaitGroup
	for i := range n {
		workers.Go(func() {
			if outputs[i] = runWorker(ctx, filepath.Join(t.TempDir(), fmt.Sprint(i)), exe, fmt.Sprintf("%d/%d", i, n), first, count); outputs[i] != "" {
				cancel(errors.New("another worker has failed"))
			}
		})
	}
	workers.Wait()
	return slices.DeleteFunc(outputs, func(output string) bool { return output == "" })
}

// runWorker runs a worker process, and returns its output if it has failed by itself.
func runWorker(ctx context.Context, logName, exe, part string, first uint64, count int) string {
	log, err := os.Create(logName)
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, exe, "-test.run=^TestWorker$", "-test.v", "-test.timeout=0", "-sim.worker="+part, fmt.Sprintf("-sim.seed=%d", first),
		fmt.Sprintf("-sim.count=%d", count), fmt.Sprintf("-sim.repeat=%d", *repeat), fmt.Sprintf("-sim.duration=%v", *duration),
		fmt.Sprintf("-sim.everything=%t", *everything))
	// One thread runs all goroutines of a schedule, so that a seed does nearly the same each time.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOTRACEBACK=all")
	cmd.Stdout, cmd.Stderr = log, log
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		return err.Error()
	}
	err = cmd.Run()
	if err == nil || ctx.Err() != nil {
		return ""
	}
	text, _ := os.ReadFile(logName)
	return fmt.Sprintf("worker %s: %v\n%s", part, err, ofFailures(text))
}

var (
	wrong  = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: `)
	passed = regexp.MustCompile(`(?m)^ *--- PASS.*\n`)
)

// ofFailures is the output of a worker without that of seeds that passed. The last one may have ended the process.
func ofFailures(output []byte) string {
	var kept strings.Builder
	seeds := strings.Split(string(passed.ReplaceAll(output, nil)), "=== RUN")
	for i, seed := range seeds {
		if i == len(seeds)-1 || wrong.MatchString(seed) {
			kept.WriteString("=== RUN" + seed)
		}
	}
	return kept.String()
}

// TestWorker is a worker process: it runs its part of the seeds, one after the other.
func TestWorker(t *testing.T) {
	var i, n int
	if _, err := fmt.Sscanf(*worker, "%d/%d", &i, &n); err != nil {
		t.Skip("run by the other tests, in processes of their own")
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	started, failed := time.Now(), 0
	for ; i < *seedCount**repeat && failed < failuresMost; i += n {
		if *duration > 0 && time.Since(started) > *duration {
			t.Fatalf("only %d of %d schedules ran within %v", i, *seedCount**repeat, *duration)
		}
		if !runSeed(t, *firstSeed+uint64(i / *repeat)) {
			failed++
		}
	}
}

// runSeed runs the schedule of one seed. A goroutine that it leaves behind fails the bubble.
func runSeed(t *testing.T, seed uint64) bool {
	// Outside of the bubble, so by real time. It says where all goroutines are.
	watch := time.AfterFunc(seedWait, func() { panic(fmt.Sprintf("seed %d did not end within %v", seed, seedWait)) })
	defer watch.Stop()
	return t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := simulate(t, drawPlan(seed))
			synctest.Wait()
			history := s.model.History()
			if wrongs := s.check(history); len(wrongs) > 0 || t.Failed() {
				t.Error(report(s, wrongs, history))
			}
		})
	})
}

// reportLines bounds the history that a failing seed prints.
const reportLines = 400

// report is the plan, what is wrong, what happened, and how to see it again.
func report(s *schedule, wrongs []string, history []model.Event) string {
	var b strings.Builder
	b.WriteString(s.plan.String())
	for _, w := range wrongs {
		fmt.Fprintf(&b, "WRONG %s\n", w)
	}
	lines := s.story(history)
	if n := len(lines); n > reportLines && !*everything {
		fmt.Fprintf(&b, "%d lines of history, the first %d and the last %d:\n", n, reportLines/2, reportLines/2)
		lines = append(lines[:reportLines/2:reportLines/2], lines[n-reportLines/2:]...)
	}
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	fmt.Fprintf(&b, "replay: make sim SEED=%d COUNT=1 TESTARGS=-sim.repeat=20\n", s.plan.seed)
	return b.String()
}
