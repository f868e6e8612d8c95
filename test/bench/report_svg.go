package main

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
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
	chartWidth = 980
	labelWidth = 400
	valueWidth = 190
	rowHeight  = 24
	barHeight  = 14
	headHeight = 84
	footHeight = 44
)

// chart is what the template draws: rates of ours over those of a rival on a logarithmic axis, where equal is 1.
type chart struct {
	Width, Height    int
	Top, Bottom      float64
	Subtitle         string
	One              float64 // x of the ratio 1
	Ticks            []chartTick
	Rows             []chartRow
	LegendY, FooterY float64
}

type chartTick struct {
	X     float64
	Label string
}

type chartRow struct {
	Label        string
	Value        string
	Class        string // met, missed or plain (no target)
	Y, TextY     float64
	X, Width     float64 // of the bar
	Low, High    float64 // x of the extremes
	HasTarget    bool
	Target       float64 // x of the target
	BarHeight    int
	Middle, Tail float64 // y of the whisker, y of the bar's lower edge
	ValueX       float64
}

// comparison is one bar before it is placed.
type comparison struct {
	label  string
	ratio  Spread
	target float64 // 0: none
	met    bool
}

// comparisons lists, case by case, our rate against every rival's.
func comparisons(cases []CaseResult) []comparison {
	var list []comparison
	for i := range cases {
		c := &cases[i]
		mine := c.ours()
		if c.Failed != "" || len(mine) == 0 {
			continue
		}
		verdicts := c.judge()
		for _, contender := range c.Contenders {
			if contender.Ours {
				continue
			}
			bar := comparison{
				label: c.Name + " / " + contender.Name,
				ratio: Rate.ratio(mine, contender.Samples, 0),
			}
			for _, v := range verdicts {
				if v.Metric == Rate && v.Rival == contender.Name {
					bar.ratio, bar.target, bar.met = v.Value, v.AtLeast, v.Met
				}
			}
			if bar.ratio.Min > 0 {
				list = append(list, bar)
			}
		}
	}
	return list
}

// writeSVG draws the chart, and nothing at all if there is no comparison to draw.
func writeSVG(w io.Writer, report *Report) error {
	bars := comparisons(report.Cases)
	if len(bars) == 0 {
		return nil
	}
	return chartTemplate.Execute(w, layOut(bars, &report.Environment))
}

// axis maps ratios to x.
type axis struct{ low, high, left, right float64 }

func (a axis) x(ratio float64) float64 {
	ratio = min(max(ratio, a.low), a.high)
	share := (math.Log(ratio) - math.Log(a.low)) / (math.Log(a.high) - math.Log(a.low))
	return math.Round(10*(a.left+share*(a.right-a.left))) / 10
}

// axisFor spans all bars and targets and always has the ratio 1 well inside.
func axisFor(bars []comparison) axis {
	low, high := 0.5, 2.0
	for _, b := range bars {
		low = min(low, b.ratio.Min)
		high = max(high, b.ratio.Max, b.target)
	}
	return axis{low: low * 0.95, high: high * 1.05, left: labelWidth, right: chartWidth - valueWidth}
}

// ticks returns the 1-2-5 steps on the axis, only the powers of ten where it is long.
func (a axis) ticks() []chartTick {
	steps := []float64{1, 2, 5}
	if a.high/a.low > 200 {
		steps = steps[:1]
	}
	var ticks []chartTick
	for exponent := -3.0; exponent <= 6; exponent++ {
		for _, step := range steps {
			if v := step * math.Pow(10, exponent); v >= a.low && v <= a.high {
				ticks = append(ticks, chartTick{X: a.x(v), Label: fmt.Sprintf("%g×", math.Round(v*1e3)/1e3)})
			}
		}
	}
	return ticks
}

func layOut(bars []comparison, e *Environment) chart {
	a := axisFor(bars)
	c := chart{
		Width:    chartWidth,
		Height:   headHeight + rowHeight*len(bars) + footHeight,
		Top:      headHeight,
		Bottom:   float64(headHeight + rowHeight*len(bars)),
		One:      a.x(1),
		Ticks:    a.ticks(),
		Subtitle: fmt.Sprintf("nats.go %s, nats-server %s, %d interleaved rounds, %d processors", e.Client, e.Server, e.Rounds, e.Processors),
	}
	c.FooterY = c.Bottom + 18
	c.LegendY = c.Bottom + 36
	for i, b := range bars {
		c.Rows = append(c.Rows, row(a, b, float64(headHeight+i*rowHeight)))
	}
	return c
}

func row(a axis, b comparison, top float64) chartRow {
	value := a.x(b.ratio.Median)
	y := top + (rowHeight-barHeight)/2
	r := chartRow{
		Label: b.label, Value: times(b.ratio.Median), Class: "plain",
		Y: y, TextY: top + rowHeight/2 + 4,
		X: min(a.x(1), value), Width: max(math.Abs(value-a.x(1)), 1),
		Low: a.x(b.ratio.Min), High: a.x(b.ratio.Max),
		BarHeight: barHeight, Middle: y + barHeight/2, Tail: y + barHeight,
	}
	ends := []float64{a.x(1), value, r.High}
	if b.target > 0 {
		r.HasTarget, r.Target, r.Class = true, a.x(b.target), "missed"
		outcome := "missed"
		if b.met {
			r.Class, outcome = "met", "met"
		}
		r.Value += fmt.Sprintf(", target %s %s", times(b.target), outcome)
		ends = append(ends, r.Target)
	}
	r.ValueX = slices.Max(ends) + 8
	return r
}
