package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// headlines are the rows of the chart and of the first table of bench/client.md: benchmarks in a user's words, and the rival's call.
var headlines = []struct{ name, words, rival string }{
	{"Next/goroutines=1", "one message at a time (Next)", "jetstream Next"},
	{"Next/goroutines=8", "one at a time on 8 goroutines (Next)", "jetstream Next"},
	{"Next/goroutines=64", "one at a time on 64 goroutines (Next)", "jetstream Next"},
	{"AckNext/link=loopback", "ack and next message (AckNext)", "jetstream Next"},
	{"Fetch/batch=10", "batches of 10 (Fetch)", "jetstream Fetch"},
	{"Fetch/batch=100", "batches of 100 (Fetch)", "jetstream Fetch"},
	{"ConfirmAcks/link=loopback", "100 acks, each confirmed (ConfirmAcks)", "DoubleAck, one by one"},
	{"Consume/link=loopback", "a worker (Consume)", "Consume"},
	{"Messages/link=loopback", "a loop (Messages)", "Messages().Next"},
	{"Consume/link=5ms", "a worker, 5 ms from the server (Consume)", "Consume"},
	{"Messages/link=5ms", "a loop, 5 ms from the server (Messages)", "Messages().Next"},
	{"Consume/handlers=64", "handlers of 1 ms, 64 at a time (Consume)", "Consume + pool of 64"},
}

// figures are the values of benchmarks, one per round, by name, client and unit.
type figures map[[3]string][]float64

// processors matches the number of processors at the end of a name.
var processors = regexp.MustCompile(`-\d+$`)

func readFigures(path string) (figures, error) {
	all, files := figures{}, benchfmt.Files{Paths: []string{path}}
	for files.Scan() {
		r, ok := files.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name, client, _ := strings.Cut(processors.ReplaceAllString(r.Name.String(), ""), "/client=")
		for _, v := range r.Values {
			key := [3]string{name, client, v.Unit}
			all[key] = append(all[key], v.Value)
		}
	}
	return all, files.Err()
}

func (f figures) of(name, client, unit string) benchmath.Summary {
	return summary(f[[3]string{name, client, unit}])
}

// ratio divides one client's figure by the other's, round by round. The two ran within seconds of each other,
// so a machine that becomes slower affects both sides of the quotient.
func (f figures) ratio(name, over, under, unit string) benchmath.Summary {
	left, right := f[[3]string{name, over, unit}], f[[3]string{name, under, unit}]
	var quotients []float64
	for i := range min(len(left), len(right)) {
		quotients = append(quotients, left[i]/right[i])
	}
	return summary(quotients)
}

func summary(values []float64) benchmath.Summary {
	if len(values) == 0 {
		return benchmath.Summary{}
	}
	// Clone the values: a sample sorts its values, but the rounds of two clients must stay together.
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), 0.95)
}

const (
	ours   = "jetpull"
	theirs = "nats.go"
	// bareName is the name of the loop with one ChanSubscribe.
	bareName = "ChanSubscribe"
	timeOf   = "sec/op"
	cpuOf    = "cpu-sec/op"
)

// chart draws the ratios of the rates.
func (f figures) chart() []byte {
	var rows []ratio
	for _, h := range headlines {
		rate := f.ratio(h.name, theirs, ours, timeOf)
		if rate.Center == 0 {
			continue
		}
		rows = append(rows, ratio{
			Name: h.words, Median: rate.Center, Least: rate.Lo, Most: rate.Hi, Worse: loses(rate.Center), Text: times(rate.Center),
			Note: perSecond(f.of(h.name, ours, timeOf)) + " to " + perSecond(f.of(h.name, theirs, timeOf)),
		})
	}
	if len(rows) == 0 {
		return nil
	}
	return writeRatios("Messages a second: jetpull over nats.go", fmt.Sprintf(
		"every message acknowledged; median of the rounds, the line is the 95 %% confidence interval; %d processors", runtime.NumCPU()), rows)
}

// summary writes the part of bench/client.md that compares jetpull with nats.go row by row.
func (f figures) summary(rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `![The rate of jetpull relative to nats.go](../docs/bench.svg)

Medians of %d interleaved rounds on %d processors. The server is a process of its own. A round counts only if each message
was received exactly once and acknowledged. The next three columns compare jetpull with nats.go: the ratio of the rates and of the
client's CPU times, taken round by round, and the allocations per message. Figures that are worse than those of nats.go are bold. The
column "limit" is the rate of jetpull, divided by that of a loop which publishes its pulls by hand and reads one ChanSubscribe: no client on
nats.go's connection does less.

| | jetpull | nats.go | rate | CPU | allocations | limit |
| --- | --- | --- | --- | --- | --- | --- |
`, rounds, runtime.NumCPU())
	for _, h := range headlines {
		rate, cpu := f.ratio(h.name, theirs, ours, timeOf).Center, f.ratio(h.name, ours, theirs, cpuOf).Center
		if rate == 0 {
			continue
		}
		limit := "–"
		if bare := f.ratio(h.name, bareName, ours, timeOf).Center; bare > 0 {
			limit = times(bare)
		}
		fmt.Fprintf(&b, "| %s | %s | %s with %s | %s | %s | %.1f to %.1f | %s |\n", h.words, perSecond(f.of(h.name, ours, timeOf)),
			perSecond(f.of(h.name, theirs, timeOf)), h.rival, bold(times(rate), loses(rate)), bold(times(cpu), cpu >= 1.005),
			f.of(h.name, ours, "allocs/op").Center, f.of(h.name, theirs, "allocs/op").Center, limit)
	}
	const idle = "Idle/consumes=1000"
	fmt.Fprintf(&b, "\nAn idle Consume needs %.1f kB of heap (nats.go: %.1f kB), and 1,000 of them %.2f %% of a core (nats.go: %.2f %%).\n",
		f.of(idle, ours, "heap-B/consume").Center/1000, f.of(idle, theirs, "heap-B/consume").Center/1000,
		f.of(idle, ours, "%-of-a-core").Center, f.of(idle, theirs, "%-of-a-core").Center)
	return b.String()
}

// loses reports whether a ratio of rates is below 1 as it is printed.
func loses(rate float64) bool { return rate < 0.995 }

func bold(s string, on bool) string {
	if on {
		return "**" + s + "**"
	}
	return s
}

// times formats a ratio with three digits.
func times(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.1f×", v)
	}
	return fmt.Sprintf("%.2f×", v)
}

// perSecond formats the rate of an operation, given the time that it takes, such as 5.80k/s.
func perSecond(s benchmath.Summary) string {
	switch rate := 1 / s.Center; {
	case rate >= 99_950:
		return fmt.Sprintf("%.0fk/s", rate/1000)
	case rate >= 9_995:
		return fmt.Sprintf("%.1fk/s", rate/1000)
	case rate >= 999.5:
		return fmt.Sprintf("%.2fk/s", rate/1000)
	default:
		return fmt.Sprintf("%.0f/s", rate)
	}
}

// report writes the chart, and with -docs also the documents.
func (s settings) report(results, table string) error {
	f, err := readFigures(results)
	if err != nil {
		return err
	}
	chart := f.chart()
	if chart == nil {
		return nil
	}
	if err := os.WriteFile(strings.TrimSuffix(results, ".txt")+".svg", chart, 0o644); err != nil || !s.docs {
		return err
	}
	page := fmt.Sprintf("# Benchmarks\n\n%s, %s, %s/%s, %d processors; %d rounds. Medians with 95 %% confidence intervals, by\n`make bench`; see "+
		"[bench](README.md).\n\n%s\n```\n%s```\n",
		time.Now().UTC().Format(time.DateTime+" UTC"), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), s.rounds,
		f.summary(s.rounds), table)
	return errors.Join(
		os.WriteFile("bench/client.md", []byte(page), 0o644),
		os.WriteFile("docs/bench.svg", chart, 0o644),
	)
}
