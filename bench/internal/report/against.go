package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jetpull/jetpull/bench/measure"
)

// worseBy is the change of a median that a comparison of two builds marks.
const worseBy = 0.05

// WriteComparison writes a report of two builds: a row for each case, with the new build's figures over the old one's.
func WriteComparison(w io.Writer, report *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# This build and %s in turn\n\n", report.Against)
	environmentMarkdown(&b, &report.Environment)
	fmt.Fprintf(&b, "A row is marked where the median is worse by more than %s.\n", percent(worseBy))
	failuresMarkdown(&b, report.Cases)
	b.WriteString("\n| case | old msgs/s | new msgs/s | rate, new over old | CPU/msg, new over old | allocs/msg | |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- |\n")
	for i := range report.Cases {
		c := &report.Cases[i]
		if c.Failed != "" || len(c.Contenders) < 2 {
			continue
		}
		older, newer := c.Contenders[0].Samples, c.Ours()
		rate, cpu := measure.Rate.Ratio(newer, older, 0), measure.CPUPer.Ratio(newer, older, 0)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s to %s | %s |\n", c.Name,
			short(measure.Rate.Spread(older).Median), short(measure.Rate.Spread(newer).Median), timesWith(rate), timesWith(cpu),
			significant(measure.AllocsPer.Spread(older).Median), significant(measure.AllocsPer.Spread(newer).Median), worse(rate, cpu))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// worse marks a rate that is lower, or CPU time that is higher, by more than worseBy.
func worse(rate, cpu measure.Spread) string {
	var marks []string
	if rate.Median < 1-worseBy {
		marks = append(marks, "**slower**")
	}
	if cpu.Median > 1+worseBy {
		marks = append(marks, "**more CPU**")
	}
	return strings.Join(marks, ", ")
}
