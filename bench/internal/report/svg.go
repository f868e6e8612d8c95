package report

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
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
	chartWidth  = 800
	labelWidth  = 310
	valueWidth  = 80
	rowHeight   = 40
	barHeight   = 14
	headHeight  = 84
	footHeight  = 12
	longestBar  = chartWidth - labelWidth - valueWidth
	shortestBar = 1
)

// chart is what the template draws: two bars for each headline. Each row has a scale of its own, since the rates of one
// chart differ by a factor of a hundred.
type chart struct {
	Width, Height int
	Subtitle      string
	Client        string // version of nats.go
	Rows          []chartRow
}

type chartRow struct {
	Words        string
	LabelY       int
	X            int
	Height       int // of a bar
	Ours, Theirs chartBar
}

type chartBar struct {
	Y, TextX, TextY int
	Width           int
	Value           string
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
		Client: e.Client,
		Subtitle: fmt.Sprintf("every message acknowledged; medians of %d rounds, nats-server %s, %d processors; each row has its own scale",
			e.Rounds, e.Server, e.Processors),
	}
	for i, h := range rows {
		top := headHeight + i*rowHeight
		most := max(h.Ours, h.Theirs)
		c.Rows = append(c.Rows, chartRow{
			Words: h.words, LabelY: top + barHeight + 5, X: labelWidth, Height: barHeight,
			Ours: bar(h.Ours, most, top), Theirs: bar(h.Theirs, most, top+barHeight+1),
		})
	}
	return c
}

func bar(rate, most float64, y int) chartBar {
	width := max(int(rate/most*longestBar+0.5), shortestBar)
	return chartBar{Y: y, TextX: labelWidth + width + 6, TextY: y + barHeight - 3, Width: width, Value: short(rate) + "/s"}
}
