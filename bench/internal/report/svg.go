package report

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/template"
)

//go:embed chart.svg.tmpl
var chartText string

var chartTemplate = template.Must(template.New("chart").Funcs(template.FuncMap{"xml": escapeXML}).Parse(chartText))

func escapeXML(s string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

// Measures of the chart, in pixels.
const (
	chartWidth  = 860
	labelWidth  = 300
	valueWidth  = 220
	rowHeight   = 28
	barHeight   = 14
	headHeight  = 84
	footHeight  = 16
	plotWidth   = chartWidth - labelWidth - valueWidth
	shortestBar = 1
)

// chart is what the template draws: for each headline the ratio of the rates, as the table has it, on a logarithmic scale
// that all rows share. A bar leads from 1 to the median, and a line from the lowest round to the highest.
type chart struct {
	Width, Height int
	Subtitle      string
	Client        string // version of nats.go
	Top, Plot     int    // where the plot begins, and its height
	MarkY         int
	Marks         []chartMark
	Rows          []chartRow
}

// chartMark is a ratio on the scale.
type chartMark struct {
	X    int
	Text string
	One  bool // it is 1
}

type chartRow struct {
	Words        string
	TextY        int
	X, Y         int // of the bar
	Width        int
	Height       int
	Loses        bool
	Low, Span    int // of the rounds
	Middle       int
	ValueX       int
	RatesX       int
	Ratio, Rates string
}

// writeSVG draws the chart, and nothing at all if there are no headlines.
func writeSVG(w io.Writer, report *Report) error {
	rows := headlines(report.Cases)
	if len(rows) == 0 {
		return nil
	}
	return chartTemplate.Execute(w, layOut(rows, &report.Environment))
}

func layOut(rows []headline, e *Environment) chart {
	c := chart{
		Width:  chartWidth,
		Height: headHeight + rowHeight*len(rows) + footHeight,
		Client: e.Client, MarkY: headHeight - 14, Top: headHeight - 10, Plot: rowHeight*len(rows) + 6,
		Subtitle: fmt.Sprintf("every message acknowledged; median of %d rounds, the line is from the lowest to the highest; nats-server %s, %d processors",
			e.Rounds, e.Server, e.Processors),
	}
	scale := scaleOf(rows)
	for power := scale.from; power <= scale.to; power++ {
		ratio := math.Pow(2, power)
		c.Marks = append(c.Marks, chartMark{X: scale.x(ratio), Text: strconv.FormatFloat(ratio, 'g', 3, 64) + "×", One: power == 0})
	}
	for i, h := range rows {
		top := headHeight + i*rowHeight
		one, median := scale.x(1), scale.x(h.Rate)
		c.Rows = append(c.Rows, chartRow{
			Words: h.words, TextY: top + barHeight - 3, X: min(one, median), Y: top, Width: max(median-one, one-median, shortestBar), Height: barHeight,
			Loses: loses(h.Rate), Low: scale.x(h.Rates.Min), Span: max(1, scale.x(h.Rates.Max)-scale.x(h.Rates.Min)), Middle: top + barHeight/2,
			ValueX: labelWidth + plotWidth + 16, RatesX: labelWidth + plotWidth + 70, Ratio: times(h.Rate), Rates: short(h.Ours) + " to " + short(h.Theirs) + "/s",
		})
	}
	return c
}

// logScale is the powers of two between which a chart's ratios are.
type logScale struct{ from, to float64 }

func scaleOf(rows []headline) logScale {
	s := logScale{-1, 1}
	for _, h := range rows {
		s.from = min(s.from, math.Floor(math.Log2(min(h.Rate, h.Rates.Min))))
		s.to = max(s.to, math.Ceil(math.Log2(max(h.Rate, h.Rates.Max))))
	}
	return s
}

func (s logScale) x(ratio float64) int {
	return labelWidth + int((math.Log2(ratio)-s.from)/(s.to-s.from)*plotWidth+0.5)
}
