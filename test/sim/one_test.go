package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

// runSeed runs the schedule of one seed. A goroutine that it leaves behind
// fails the bubble.
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
