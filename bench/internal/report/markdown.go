package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jetpull/jetpull/bench/measure"
)

// WriteMarkdown writes the report as tables: first the targets, then each case in full.
func WriteMarkdown(w io.Writer, report *Report) error {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n")
	environmentMarkdown(&b, &report.Environment)
	failuresMarkdown(&b, report.Cases)
	targetsMarkdown(&b, report)
	for i := range report.Cases {
		caseMarkdown(&b, &report.Cases[i])
	}
	idleMarkdown(&b, report.Idle)
	_, err := io.WriteString(w, b.String())
	return err
}

func environmentMarkdown(b *strings.Builder, e *Environment) {
	fmt.Fprintf(b, "%s. %s, nats.go %s, nats-server %s in a process of its own (file store), %s, %d processors",
		e.Time.UTC().Format(time.DateTime+" UTC"), e.Go, e.Client, e.Server, e.System, e.Processors)
	if e.Load != "" {
		fmt.Fprintf(b, ", load average %s before the run", e.Load)
	}
	pending := "the server's default"
	if e.MaxAckPending != 0 {
		pending = fmt.Sprint(e.MaxAckPending)
	}
	fmt.Fprintf(b, ".\n%d rounds, interleaved; payload %d bytes; MaxAckPending: %s; round trip %s, on the slow link %s.\n"+
		"Figures are median (lowest–highest); ratios are taken round by round.\n",
		e.Rounds, e.Payload, pending, duration(float64(e.RoundTrip)), duration(float64(e.SlowRoundTrip)))
}

func failuresMarkdown(b *strings.Builder, cases []measure.CaseResult) {
	for _, c := range cases {
		if c.Failed != "" {
			fmt.Fprintf(b, "\n**Failed:** %s\n", c.Failed)
		}
	}
}

func targetsMarkdown(b *strings.Builder, report *Report) {
	var rows strings.Builder
	for i := range report.Cases {
		c := &report.Cases[i]
		for _, v := range c.Judge() {
			fmt.Fprintf(&rows, "| %s | %s | %s | %s | %s | %s |\n",
				c.Name, v.Metric, against(v.Target), value(v), bound(v.Target), metOrMissed(v.Met))
		}
	}
	idleTargets(&rows, report.Idle)
	if rows.Len() == 0 {
		return
	}
	b.WriteString("\n## Targets\n\n| case | figure | against | ours | target | |\n| --- | --- | --- | --- | --- | --- |\n")
	b.WriteString(rows.String())
}

func caseMarkdown(b *strings.Builder, c *measure.CaseResult) {
	if c.Failed != "" {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n`%s`\n\n", c.Title, c.Name)
	b.WriteString("| client | msgs/s | time/msg | CPU/msg | allocs/msg | bytes/msg | handler calls | our rate is | our CPU is |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	mine := c.Ours()
	for _, contender := range c.Contenders {
		rate, cpu := "", ""
		if !contender.Ours && len(mine) > 0 {
			rate = timesWith(measure.Rate.Ratio(mine, contender.Samples, 0))
			cpu = timesWith(measure.CPUPer.Ratio(mine, contender.Samples, 0))
		}
		s := contender.Samples
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", contender.Name,
			formatSpread(measure.Rate, measure.Rate.Spread(s)), median(measure.TimePer, s),
			formatSpread(measure.CPUPer, measure.CPUPer.Spread(s)), median(measure.AllocsPer, s), median(measure.BytesPer, s),
			callsText(s), rate, cpu)
	}
}

func median(m measure.Metric, samples []measure.Sample) string {
	return format(m, m.Spread(samples).Median)
}

// callsText writes handler calls and the messages they were for.
func callsText(samples []measure.Sample) string {
	if len(samples) == 0 {
		return ""
	}
	n := samples[0].Messages
	return fmt.Sprintf("%.0f for %d", measure.CallsPer.Spread(samples).Median*float64(n), n)
}
