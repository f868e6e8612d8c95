package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jetpull/jetpull/bench/measure"
)

// headline is a row of the chart and of the README: a case in a user's words.
type headline struct {
	words string
	measure.Comparison
}

// headlines returns the cases that have Words and figures of this library and of nats.go.
func headlines(cases []measure.CaseResult) []headline {
	var list []headline
	for i := range cases {
		if figures, ok := cases[i].Compare(); ok && cases[i].Words != "" {
			list = append(list, headline{cases[i].Words, figures})
		}
	}
	return list
}

// writeReadme writes the README's part on performance: the chart and its rows as a table.
func writeReadme(report *Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, `![The rate of jetpull beside that of nats.go](docs/bench.svg)

Medians of %d interleaved rounds on %d processors; the server is a process of its own. A round counts only if each message
was received exactly once and acknowledged. The last three columns have jetpull beside nats.go: the rates' and the client's
CPU times' ratio, taken round by round, and the allocations for a message. Figures that are worse than those of nats.go are bold.
[docs/bench.md](docs/bench.md) has all figures.

| | jetpull | nats.go | rate | CPU | allocations |
| --- | --- | --- | --- | --- | --- |
`, report.Environment.Rounds, report.Environment.Processors)
	for _, h := range headlines(report.Cases) {
		fmt.Fprintf(&b, "| %s | %s/s | %s/s with %s | %s | %s | %.1f to %.1f |\n", h.words, short(h.Ours), short(h.Theirs),
			strings.TrimPrefix(h.Rival, "nats.go "), bold(times(h.Rate), loses(h.Rate)), bold(times(h.CPU), h.CPU >= 1.005),
			h.Allocs, h.TheirAllocs)
	}
	if len(report.Idle) > 0 {
		fmt.Fprintf(&b, "\nAn idle Consume needs %s of heap (nats.go: %s), and 1,000 of them %s of a core (nats.go: %s).\n",
			idleHeap.text(report.Idle, true), idleHeap.text(report.Idle, false),
			idleCPU.text(report.Idle, true), idleCPU.text(report.Idle, false))
	}
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

// The README's part on performance stands between these lines.
var (
	readmeBegin = []byte("<!-- bench:begin -->\n")
	readmeEnd   = []byte("<!-- bench:end -->\n")
)

// WriteDocs writes docs/bench.md, docs/bench.svg and the README's part on performance in the module's folder.
func WriteDocs(report *Report, root string) error {
	readme := filepath.Join(root, "README.md")
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	head, rest, begun := bytes.Cut(text, readmeBegin)
	_, tail, ended := bytes.Cut(rest, readmeEnd)
	if !begun || !ended {
		return fmt.Errorf("%s has no lines %q and %q", readme, readmeBegin, readmeEnd)
	}
	part := []byte(writeReadme(report))
	return errors.Join(
		os.WriteFile(readme, bytes.Join([][]byte{head, readmeBegin, part, readmeEnd, tail}, nil), 0o600),
		writeFile(filepath.Join(root, "docs", "bench.md"), report, WriteMarkdown),
		writeFile(filepath.Join(root, "docs", "bench.svg"), report, writeSVG),
	)
}
