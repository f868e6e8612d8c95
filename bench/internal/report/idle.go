package report

import (
	"fmt"
	"strings"

	"github.com/jetpull/jetpull/bench/measure"
)

// idleFigure is a row of the idle table, with a target if atMost is not 0.
type idleFigure struct {
	name   string
	plan   measure.IdlePlan
	of     func(r *measure.IdleResult) float64
	format func(float64) string
	atMost float64
}

var (
	idleHeap = idleFigure{"heap of one Consume", measure.IdleFew, heapEach, byteCount, 15_000}
	idleCPU  = idleFigure{"CPU time of 1,000, share of a core", measure.IdleMany, func(r *measure.IdleResult) float64 { return r.CPU }, percent, 0.015}
)

var idleFigures = []idleFigure{
	idleHeap,
	{"frames that one receives in a second", measure.IdleFew, func(r *measure.IdleResult) float64 { return r.Frames / float64(r.Subscriptions) }, significant, 0.6},
	{"goroutines of one", measure.IdleFew, func(r *measure.IdleResult) float64 { return float64(r.Goroutines) / float64(r.Subscriptions) }, significant, 0},
	{"heap of one that has handled 6,000 messages", measure.IdleAfter, heapEach, byteCount, 24_000},
	{"heap and stacks of 1,000", measure.IdleMany, func(r *measure.IdleResult) float64 { return float64(r.Heap + r.Stacks) }, byteCount, 25e6},
	idleCPU,
	{"requests of 1,000 in a second", measure.IdleMany, func(r *measure.IdleResult) float64 { return r.Requests }, significant, 0},
	{"frames that 1,000 receive in a second", measure.IdleMany, func(r *measure.IdleResult) float64 { return r.Frames }, significant, 0},
}

func heapEach(r *measure.IdleResult) float64 { return float64(r.Heap) / float64(r.Subscriptions) }

func percent(v float64) string { return significant(100*v) + " %" }

// value returns the figure of this library or of nats.go; ok is false where it was not measured.
func (f *idleFigure) value(results []measure.IdleResult, ours bool) (v float64, ok bool) {
	for i := range results {
		if r := &results[i]; r.IdlePlan == f.plan && r.Ours == ours {
			return f.of(r), true
		}
	}
	return 0, false
}

func (f *idleFigure) text(results []measure.IdleResult, ours bool) string {
	if v, ok := f.value(results, ours); ok {
		return f.format(v)
	}
	return "–"
}

// idleTargets writes the rows of the targets' table.
func idleTargets(b *strings.Builder, idle []measure.IdleResult) {
	for _, f := range idleFigures {
		if v, ok := f.value(idle, true); ok && f.atMost > 0 {
			fmt.Fprintf(b, "| %s | %s | – | %s | ≤ %s | %s |\n",
				measure.IdleName, f.name, f.format(v), f.format(f.atMost), metOrMissed(v <= f.atMost))
		}
	}
}

func idleMarkdown(b *strings.Builder, idle []measure.IdleResult) {
	if len(idle) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Consumes with nothing to do\n\n`%s`; one is the mean of %d\n\n", measure.IdleName, measure.IdleFew.Subscriptions)
	b.WriteString("| figure | jetpull | nats.go Consume |\n| --- | --- | --- |\n")
	for _, f := range idleFigures {
		fmt.Fprintf(b, "| %s | %s | %s |\n", f.name, f.text(idle, true), f.text(idle, false))
	}
}
