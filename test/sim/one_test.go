package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

// verdict is what came of one seed.
type verdict struct {
	Seed   uint64
	Wrongs []string `json:",omitempty"`
	// Report has the plan and the history, of a seed that failed.
	Report string `json:",omitempty"`
	Counts counts
}

// counts are what a schedule, or many of them, saw.
type counts struct {
	Messages, Deliveries, Handed, Duplicates, Faults, Deletions, DeadLetters, Pulls, Calls int
}

func (c *counts) add(o counts) {
	c.Messages += o.Messages
	c.Deliveries += o.Deliveries
	c.Handed += o.Handed
	c.Duplicates += o.Duplicates
	c.Faults += o.Faults
	c.Deletions += o.Deletions
	c.DeadLetters += o.DeadLetters
	c.Pulls += o.Pulls
	c.Calls += o.Calls
}

// runSeed runs the schedule of one seed. A goroutine that it leaves behind
// fails the bubble.
func runSeed(t *testing.T, seed uint64) verdict {
	v := verdict{Seed: seed}
	ok := t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := drawPlan(seed)
			s := simulate(t, p)
			synctest.Wait()
			history := s.model.History()
			v.Wrongs = s.check(history)
			v.Counts = s.count(history)
			if len(v.Wrongs) > 0 {
				v.Report = report(s, v.Wrongs, history)
			}
		})
	})
	if !ok && len(v.Wrongs) == 0 {
		v.Wrongs = []string{"its bubble failed"}
		v.Report = drawPlan(seed).String()
	}
	return v
}

func (s *schedule) count(history []model.Event) counts {
	c := counts{Faults: len(s.plan.faults), Calls: len(s.calls), Handed: len(s.handings)}
	if _, deleted := s.plan.deletion(); deleted {
		c.Deletions++
	}
	distinct := map[uint64]bool{}
	for _, h := range s.handings {
		distinct[h.seq] = true
	}
	c.Duplicates = c.Handed - len(distinct)
	for _, e := range history {
		switch {
		case e.Kind == model.Stored && e.Stream == deadStream:
			c.DeadLetters++
		case e.Kind == model.Stored:
			c.Messages++
		case e.Kind == model.Delivered:
			c.Deliveries++
		case isPull(e):
			c.Pulls++
		}
	}
	return c
}

// reportLines bounds the history that a failing seed prints.
const reportLines = 400

// report is the plan, what is wrong, and what happened.
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
	return b.String()
}
