// Package chart draws the SVG charts of the demos.
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
	Dashed bool    // for lines that are not measurements, such as limits
	Area   bool    // filled down to zero
}

// Mark is an event at x: a dashed line from top to bottom with its name.
type Mark struct {
	X    float64
	Name string
}

// Chart is a set of lines over two axes that begin at zero.
type Chart struct {
	Title, XTitle, YTitle string
	Series                []Series
	Marks                 []Mark
}

// Dimensions of a chart, in pixels.
const (
	chartWidth  = 860
	chartHeight = 300
	plotLeft    = 76
	plotRight   = chartWidth - 20
	plotTop     = 64
	plotBottom  = chartHeight - 52
	legendTop   = 44
	letterWidth = 7 // approximate width of a letter in the legend
)

// wantedTicks is the approximate number of values on an axis.
const wantedTicks = 6

// colours of the series, in order. Readers with red-green colour blindness can distinguish them.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6f42c1", "#59636e"}

// Save writes a picture of charts to the file at path. It creates the folder if necessary.
func Save(path string, charts ...Chart) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(Write(f, charts...), f.Close())
}

// Write draws an SVG picture of charts, one below the other.
func Write(w io.Writer, charts ...Chart) error {
	if len(charts) == 0 {
		return errors.New("no chart to draw")
	}
	var b bytes.Buffer
	begin(&b, chartHeight*len(charts))
	for i, c := range charts {
		p, err := newPlot(c)
		if err != nil {
			return fmt.Errorf("chart %q: %w", c.Title, err)
		}
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*chartHeight)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// begin writes the start of a picture with a white background.
func begin(b *bytes.Buffer, height int) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %d" `+
		`font-family="Helvetica, Arial, sans-serif" font-size="12">`+"\n", chartWidth, height, height)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
}

// plot is a chart with its scales.
type plot struct {
	Chart
	maxX, maxY   float64
	tickX, tickY float64 // the distance between two values of an axis
}

func newPlot(c Chart) (*plot, error) {
	p := &plot{Chart: c}
	for _, s := range c.Series {
		if !slices.IsSortedFunc(s.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) }) {
			return nil, fmt.Errorf("the points of %q are not in the order of x", s.Name)
		}
		for _, at := range s.Points {
			// The negation also catches NaN.
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
	// Keep the highest value below the upper edge.
	p.maxY = math.Ceil(p.maxY/p.tickY+0.05) * p.tickY
	p.maxX = max(p.maxX, p.tickX)
	return p, nil
}

// tick returns a round number that divides an axis up to most into at most wantedTicks parts.
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

func (p *plot) draw(b *bytes.Buffer) {
	p.axes(b)
	for n, s := range p.Series {
		p.line(b, s, colours[n%len(colours)])
	}
	for _, m := range p.Marks {
		p.mark(b, m)
	}
	p.legend(b)
}

func (p *plot) mark(b *bytes.Buffer, m Mark) {
	x := p.x(m.X)
	fmt.Fprintf(b, `<line x1="%s" y1="%d" x2="%[1]s" y2="%[3]d" stroke="#1f2328" stroke-dasharray="3 3"/>`+"\n", x, plotTop, plotBottom)
	label(b, 0, 0, fmt.Sprintf(`transform="translate(%s %d)" dx="5" dy="12" fill="#1f2328" font-style="italic"`, x, plotTop), m.Name)
}

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

// figure formats a value of an axis, such as 1,500 or 0.25.
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
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%s %s", command, p.x(at.X), p.y(at.Y))
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
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%[2]d" stroke="%[4]s" stroke-width="4"%[5]s/>`+"\n", x, legendTop, x+18,
			colours[n%len(colours)], dashes(s))
		label(b, x+24, legendTop+4, `fill="#1f2328"`, s.Name)
		x += 44 + letterWidth*len(s.Name)
	}
}

func label(b *bytes.Buffer, x, y int, attributes, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" %s>`, x, y, attributes)
	// A buffer accepts every write. EscapeText replaces characters that XML does not allow by U+FFFD.
	_ = xml.EscapeText(b, []byte(text))
	b.WriteString("</text>\n")
}
