package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// span is from the lowest to the highest that was measured; the zero span says
// that nothing was.
type span struct{ low, high float64 }

// figure is one result of one run.
type figure struct {
	name     string
	unit     string // with the space in front, if there is one; "/s" is the better the more
	value    float64
	note     string
	original span   // what was recorded
	like     string // the case to compare the broker beside in, if it cannot do this one
	wanted   string
	requests int // that a job takes, where it is to be shown as a share of what the bare handler does with as many
}

// latency is a quantile as a figure.
func latency(name string, took []time.Duration, q float64, original span, wanted string) figure {
	f := figure{name: name, unit: " ms", original: original, wanted: wanted}
	if sorted := slices.Sorted(slices.Values(took)); len(sorted) > 0 {
		at := sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
		f.value = float64(at.Microseconds()) / 1000
	}
	return f
}

// cell has the runs of one case with one setting.
type cell struct {
	values []float64
	shares []float64 // of what the bare handler did just before, in percent
	note   string    // of the last run
}

// line is a case in the table.
type line struct {
	figure
	cells map[string]*cell // by target
	// Of the machine before each run.
	loads, disk, handler []float64
}

// table collects figures, in the order in which they first come.
type table struct {
	syncs  []string
	beside string // address of the broker beside ours, if there is one
	lines  []*line
}

func (t *table) add(target string, f figure, g ground) {
	i := slices.IndexFunc(t.lines, func(l *line) bool { return l.name == f.name })
	if i < 0 {
		i = len(t.lines)
		t.lines = append(t.lines, &line{figure: f, cells: map[string]*cell{}})
	}
	l := t.lines[i]
	if l.cells[target] == nil {
		l.cells[target] = &cell{}
	}
	c := l.cells[target]
	c.values = append(c.values, f.value)
	if f.requests > 0 {
		c.shares = append(c.shares, 100*f.value/g.jobs(f.requests))
	}
	c.note = f.note
	l.loads, l.disk, l.handler = append(l.loads, g.load), append(l.disk, g.syncs), append(l.handler, g.bare)
}

// write writes the table as Markdown.
func (t *table) write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| |")
	for _, sync := range t.syncs {
		b.WriteString(" `--sync " + sync + "` | ratio |")
	}
	b.WriteString(" original | wanted | disk syncs | bare handler | load |\n|" + strings.Repeat(" --- |", 2*len(t.syncs)+6) + "\n")
	for _, l := range t.lines {
		theirs := t.theirs(l)
		b.WriteString("| " + l.name + " |")
		for _, sync := range t.syncs {
			b.WriteString(" " + l.figures(l.cells[sync]) + " | " + l.ratio(l.cells[sync], theirs) + " |")
		}
		b.WriteString(" " + l.reference(theirs) + " | " + orDash(l.wanted) + " | " + spanOf(l.disk).format("/s") + " | " + spanOf(l.handler).format("/s") + " | " + spanOf(l.loads).format("") + " |\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// theirs is what the broker beside did, if it was measured.
func (t *table) theirs(l *line) *cell {
	i := slices.IndexFunc(t.lines, func(other *line) bool { return other.name == l.like })
	if i >= 0 && l.cells[t.beside] == nil {
		l = t.lines[i]
	}
	return l.cells[t.beside]
}

func plural(requests int) string {
	if requests == 1 {
		return "one request"
	}
	return strconv.Itoa(requests) + " requests"
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// figures shows the median of the runs, and their range if there are several.
func (l *line) figures(c *cell) string {
	if c == nil {
		return "–"
	}
	s := number(median(c.values)) + l.unit
	if len(c.values) > 1 {
		s += " (" + spanOf(c.values).format("") + ")"
	}
	if l.requests > 0 {
		s += ", " + number(median(c.shares)) + " % of the bare handler with " + plural(l.requests) + " a job"
	}
	if c.note != "" {
		s += ", " + c.note
	}
	return s
}

// ratio compares the median with the best and the worst of the broker beside, or
// of the original when it was recorded.
func (l *line) ratio(c, theirs *cell) string {
	against := l.original
	if theirs != nil {
		against = spanOf(theirs.values)
	}
	if c == nil || against.low == 0 {
		return "–"
	}
	ours := median(c.values)
	r := span{against.low / ours, against.high / ours}
	if l.unit == "/s" {
		r = span{ours / against.high, ours / against.low}
	}
	return "×" + r.format("")
}

func (l *line) reference(theirs *cell) string {
	switch {
	case theirs != nil && l.like != "":
		return number(median(theirs.values)) + l.unit + " of " + l.like
	case theirs != nil:
		return l.figures(theirs)
	case l.original.low == 0:
		return "–"
	}
	return "recorded " + l.original.format(l.unit)
}

func (s span) format(unit string) string {
	if low, high := number(s.low), number(s.high); low != high {
		return low + "–" + high + unit
	}
	return number(s.low) + unit
}

// number keeps three digits where they say something.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func spanOf(values []float64) span { return span{slices.Min(values), slices.Max(values)} }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// load is how many processes wanted a processor in the last minute.
func load() (float64, error) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), " ")
	return strconv.ParseFloat(first, 64)
}
