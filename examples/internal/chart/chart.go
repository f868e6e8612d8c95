// Package chart draws the SVG pictures of the demonstrations: charts and timelines.
package chart

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/jetpull/jetpull/internal/service/progress"
)

// Point is a value y at x.
type Point struct{ X, Y float64 }

// Series is one line of a chart.
type Series struct {
	Name   string
	Points []Point // in the order of X
	Step   bool    // a value holds until the next point
	Dashed bool    // for what is no measurement, such as a limit
	Area   bool    // filled down to zero
}

// Mark is an event at x: a dashed line from top to bottom with its name.
type Mark struct {
	X    float64
	Name string
}

// Chart is lines over two axes that begin at zero.
type Chart struct {
	Title, XTitle, YTitle string
	Series                []Series
	Marks                 []Mark
}

// Panel is a part of a picture: a Chart or a Timeline.
type Panel interface {
	// panel checks the values, and returns the height in pixels and what draws it.
	panel() (height int, draw func(*bytes.Buffer), err error)
	title() string
}

// Measures of a chart, in pixels.
const (
	chartWidth  = 860
	chartHeight = 300
	plotLeft    = 76
	plotRight   = chartWidth - 20
	plotTop     = 64
	plotBottom  = chartHeight - 52
	legendTop   = 44
	letterWidth = 7 // of the legend's letters, about
)

// wantedTicks is about how many values an axis shows.
const wantedTicks = 6

// colours of the series, in order. Readers who see no red or no green can distinguish them, too.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6f42c1", "#59636e"}

// Save writes a picture into the file at path, whose folder it creates.
func Save(path string, panels ...Panel) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(Write(f, panels...), f.Close())
}

// Write draws an SVG picture of panels, one below the other.
func Write(w io.Writer, panels ...Panel) error {
	if len(panels) == 0 {
		return errors.New("no chart to draw")
	}
	var body, b bytes.Buffer
	total := 0
	for _, p := range panels {
		height, draw, err := p.panel()
		if err != nil {
			return fmt.Errorf("chart %q: %w", p.title(), err)
		}
		fmt.Fprintf(&body, `<g transform="translate(0 %d)">`+"\n", total)
		draw(&body)
		body.WriteString("</g>\n")
		total += height
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %d" `+
		`font-family="Helvetica, Arial, sans-serif" font-size="12">`+"\n", chartWidth, total, total)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, total)
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (c Chart) title() string { return c.Title }

func (c Chart) panel() (int, func(*bytes.Buffer), error) {
	p, err := newPlot(c)
	return chartHeight, func(b *bytes.Buffer) {
		p.axes(b)
		for n, s := range c.Series {
			p.line(b, s, colours[n%len(colours)])
		}
		for _, m := range c.Marks {
			m.draw(b, p.x(m.X), plotTop, plotBottom)
		}
		p.legend(b)
	}, err
}

// draw draws a mark at the pixel x.
func (m Mark) draw(b *bytes.Buffer, x string, top, bottom int) {
	fmt.Fprintf(b, `<line x1="%s" y1="%d" x2="%[1]s" y2="%[3]d" stroke="#1f2328" stroke-dasharray="3 3"/>`+"\n", x, top, bottom)
	label(b, 0, 0, fmt.Sprintf(`transform="translate(%s %d)" dx="5" dy="12" fill="#1f2328" font-style="italic"`, x, top), m.Name)
}

// plot is a chart with its scales.
type plot struct {
	Chart
	maxX, maxY   float64
	tickX, tickY float64 // from one to the next
}

func newPlot(c Chart) (*plot, error) {
	p := &plot{Chart: c}
	for _, s := range c.Series {
		if !slices.IsSortedFunc(s.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) }) {
			return nil, fmt.Errorf("the points of %q are not in the order of x", s.Name)
		}
		for _, at := range s.Points {
			// NaN is neither.
			if !(at.X >= 0 && at.Y >= 0 && at.X <= math.MaxFloat64/2 && at.Y <= math.MaxFloat64/2) {
				return nil, fmt.Errorf("%q has the point (%g, %g), and both have to be finite numbers from 0", s.Name, at.X, at.Y)
			}
			p.maxX, p.maxY = max(p.maxX, at.X), max(p.maxY, at.Y)
		}
	}
	if len(c.Series) == 0 {
		return nil, errors.New("it has no series")
	}
	p.tickX, p.tickY = tick(p.maxX), tick(p.maxY)
	// The highest value is below the upper edge.
	p.maxY = math.Ceil(p.maxY/p.tickY+0.05) * p.tickY
	p.maxX = max(p.maxX, p.tickX)
	return p, nil
}

// tick is a round number, of which about wantedTicks make up the axis.
func tick(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most/wantedTicks)))
	for _, factor := range []float64{1, 2, 2.5, 5} {
		if most/(factor*power) <= wantedTicks {
			return factor * power
		}
	}
	return 10 * power
}

func (p *plot) x(value float64) string { return pixels(plotLeft + value/p.maxX*(plotRight-plotLeft)) }

func (p *plot) y(value float64) string { return pixels(plotBottom - value/p.maxY*(plotBottom-plotTop)) }

func pixels(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// axes draws the titles, the grid and its values.
func (p *plot) axes(b *bytes.Buffer) {
	label(b, plotLeft, 24, `font-size="15" font-weight="bold" fill="#1f2328"`, p.Title)
	label(b, (plotLeft+plotRight)/2, chartHeight-12, `text-anchor="middle" fill="#59636e"`, p.XTitle)
	label(b, 0, 0, fmt.Sprintf(`transform="translate(18 %d) rotate(-90)" text-anchor="middle" fill="#59636e"`, (plotTop+plotBottom)/2), p.YTitle)
	for n := 0.0; n*p.tickY <= p.maxY*1.001; n++ {
		y := p.y(n * p.tickY)
		fmt.Fprintf(b, `<line x1="%d" y1="%s" x2="%d" y2="%[2]s" stroke="#d8dee4"/>`+"\n", plotLeft, y, plotRight)
		fmt.Fprintf(b, `<text x="%d" y="%s" dy="4" text-anchor="end" fill="#59636e">%s</text>`+"\n", plotLeft-8, y, figure(n*p.tickY))
	}
	for n := 0.0; n*p.tickX <= p.maxX*1.001; n++ {
		fmt.Fprintf(b, `<text x="%s" y="%d" text-anchor="middle" fill="#59636e">%s</text>`+"\n", p.x(n*p.tickX), plotBottom+18, figure(n*p.tickX))
	}
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%[2]d" stroke="#59636e"/>`+"\n", plotLeft, plotBottom, plotRight)
}

// figure writes a value of an axis: 1,500 or 0.25.
func figure(v float64) string {
	if v == math.Trunc(v) && v < 1e15 {
		return progress.Count(int64(v))
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func (p *plot) line(b *bytes.Buffer, s Series, colour string) {
	if len(s.Points) == 0 {
		return
	}
	var path bytes.Buffer
	for i, at := range s.Points {
		switch {
		case i == 0:
			fmt.Fprintf(&path, "M%s %s", p.x(at.X), p.y(at.Y))
		case s.Step:
			fmt.Fprintf(&path, "H%sV%s", p.x(at.X), p.y(at.Y))
		default:
			fmt.Fprintf(&path, "L%s %s", p.x(at.X), p.y(at.Y))
		}
	}
	if s.Area {
		first, last := s.Points[0], s.Points[len(s.Points)-1]
		fmt.Fprintf(b, `<path d="%sL%s %sL%s %[3]sZ" fill="%[5]s" fill-opacity="0.2"/>`+"\n", path.String(), p.x(last.X), p.y(0), p.x(first.X), colour)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", path.String(), colour, dashes(s))
}

func dashes(s Series) string {
	if s.Dashed {
		return ` stroke-dasharray="6 4"`
	}
	return ""
}

// legend names the series in one row.
func (p *plot) legend(b *bytes.Buffer) {
	x := plotLeft
	for n, s := range p.Series {
		x = entry(b, x, s.Name, colours[n%len(colours)], dashes(s))
	}
}

// entry draws an entry of a legend at x, and returns where the next one begins.
func entry(b *bytes.Buffer, x int, name, colour, dashes string) int {
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%[2]d" stroke="%[4]s" stroke-width="4"%[5]s/>`+"\n", x, legendTop, x+18, colour, dashes)
	label(b, x+24, legendTop+4, `fill="#1f2328"`, name)
	return x + 44 + letterWidth*len(name)
}

func label(b *bytes.Buffer, x, y int, attributes, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" %s>`, x, y, attributes)
	// A buffer takes everything, and what is no character of XML becomes U+FFFD.
	_ = xml.EscapeText(b, []byte(text))
	b.WriteString("</text>\n")
}
