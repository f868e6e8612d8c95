package chart

import (
	"bytes"
	"errors"
	"fmt"
)

// Span is the time from From to To in which a row was in a state.
type Span struct {
	From, To float64
	State    int // index into Timeline.States
}

// Row is a line of a timeline, with its spans in order.
type Row struct {
	Name  string
	Spans []Span
}

// Timeline is a bar for each row. Its colours show the states of the row over time. Without a span it is empty.
type Timeline struct {
	Title, XTitle string
	States        []string
	Rows          []Row
	Marks         []Mark
}

// Measures of a timeline in pixels. The names of marks are between the legend and the first row.
const (
	rowHeight = 24
	barHeight = 16
	rowsTop   = plotTop + 12
)

func (t Timeline) title() string { return t.Title }

func (t Timeline) panel() (int, func(*bytes.Buffer), error) {
	if len(t.Rows) == 0 {
		return 0, nil, errors.New("it has no rows")
	}
	last := 0.0
	for _, r := range t.Rows {
		for _, s := range r.Spans {
			// NaN is neither.
			if !(s.From >= 0 && s.To >= s.From && s.To <= 1e300) || s.State < 0 || s.State >= len(t.States) {
				return 0, nil, fmt.Errorf("%q has a span from %g to %g in state %d, and it has to have finite times in order and one of %d states", r.Name,
					s.From, s.To, s.State, len(t.States))
			}
			last = max(last, s.To)
		}
	}
	bottom := rowsTop + rowHeight*len(t.Rows)
	return bottom + chartHeight - plotBottom, func(b *bytes.Buffer) { t.draw(b, last, bottom) }, nil
}

func (t Timeline) draw(b *bytes.Buffer, last float64, bottom int) {
	step := tick(last)
	last = max(last, step)
	x := func(v float64) float64 { return plotLeft + v/last*(plotRight-plotLeft) }
	label(b, plotLeft, 24, `font-size="15" font-weight="bold" fill="#1f2328"`, t.Title)
	label(b, (plotLeft+plotRight)/2, bottom+chartHeight-plotBottom-12, `text-anchor="middle" fill="#59636e"`, t.XTitle)
	for n := 0.0; n*step <= last*1.001; n++ {
		fmt.Fprintf(b, `<line x1="%s" y1="%d" x2="%[1]s" y2="%[3]d" stroke="#d8dee4"/>`+"\n", pixels(x(n*step)), rowsTop, bottom)
		fmt.Fprintf(b, `<text x="%s" y="%d" text-anchor="middle" fill="#59636e">%s</text>`+"\n", pixels(x(n*step)), bottom+18, figure(n*step))
	}
	for n, r := range t.Rows {
		top := rowsTop + n*rowHeight
		label(b, plotLeft-8, top+16, `text-anchor="end" fill="#59636e"`, r.Name)
		for _, s := range r.Spans {
			fmt.Fprintf(b, `<rect x="%s" y="%d" width="%s" height="%d" fill="%s"/>`+"\n", pixels(x(s.From)), top+(rowHeight-barHeight)/2,
				pixels(x(s.To)-x(s.From)), barHeight, colours[s.State%len(colours)])
		}
	}
	for _, m := range t.Marks {
		m.draw(b, pixels(x(m.X)), plotTop-8, bottom)
	}
	at := plotLeft
	for n, state := range t.States {
		at = entry(b, at, state, colours[n%len(colours)], "")
	}
}
