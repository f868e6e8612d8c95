package report

import (
	"fmt"
	"io"

	"github.com/jetpull/jetpull/internal/progress"
)

// writeSVG draws for each headline the ratio of the rates, as the table has it, and nothing at all if there are no headlines.
func writeSVG(w io.Writer, report *Report) error {
	var rows []progress.Ratio
	for _, h := range headlines(report.Cases) {
		rows = append(rows, progress.Ratio{
			Name: h.words, Median: h.Rate, Least: h.Rates.Min, Most: h.Rates.Max, Worse: loses(h.Rate),
			Text: times(h.Rate), Note: short(h.Ours) + " to " + short(h.Theirs) + "/s",
		})
	}
	if len(rows) == 0 {
		return nil
	}
	e := &report.Environment
	return progress.WriteRatios(w, "Messages a second: jetpull over nats.go "+e.Client,
		fmt.Sprintf("every message acknowledged; median of %d rounds, the line is from the lowest to the highest; nats-server %s, %d processors",
			e.Rounds, e.Server, e.Processors), rows)
}
