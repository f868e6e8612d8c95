package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// ratio is a row of [writeRatios]: a bar from 1 to the median, and a line from the least to the most.
type ratio struct {
	Name                string
	Median, Least, Most float64 // greater than 0
	Worse               bool    // drawn in the colour for worse results
	Text, Note          string  // right of the bar
}

// Dimensions of a chart of ratios, in pixels.
const (
	ratioLeft   = 300
	ratioWidth  = 860
	ratioRight  = ratioWidth - 220
	ratioTop    = 84
	ratioRow    = 28
	ratioBar    = 14
	colourWorse = "#c2402f"
	colourBest  = "#1a7f5a"
)

// writeRatios draws ratios as an SVG picture, on a logarithmic scale that all rows share.
func writeRatios(title, subtitle string, rows []ratio) []byte {
	var b bytes.Buffer
	height := ratioTop + ratioRow*len(rows) + 16
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %d" `+
		`font-family="Helvetica, Arial, sans-serif" font-size="12">`+"\n", ratioWidth, height, height)
	box(&b, 0, 0, ratioWidth, height, "#ffffff")
	label(&b, 16, 26, `font-size="16" font-weight="bold" fill="#1f2328"`, title)
	label(&b, 16, 46, `fill="#59636e"`, subtitle)
	scale := scaleOf(rows)
	for power := scale.from; power <= scale.to; power++ {
		x, colour := scale.x(math.Pow(2, power)), "#e3e6ea"
		if power == 0 {
			colour = "#59636e"
		}
		box(&b, x, ratioTop-10, 1, ratioRow*len(rows)+6, colour)
		label(&b, x, ratioTop-14, `font-size="11" text-anchor="middle" fill="#59636e"`, strconv.FormatFloat(math.Pow(2, power), 'g', 3, 64)+"×")
	}
	for i, r := range rows {
		top, colour, textColour := ratioTop+i*ratioRow, colourBest, "#1f2328"
		if r.Worse {
			colour, textColour = colourWorse, colourWorse
		}
		text := top + ratioBar - 3
		one, median, least := scale.x(1), scale.x(r.Median), scale.x(r.Least)
		label(&b, 16, text, `font-size="13" fill="#1f2328"`, r.Name)
		box(&b, min(one, median), top, max(median-one, one-median, 1), ratioBar, colour)
		box(&b, least, top+ratioBar/2, max(1, scale.x(r.Most)-least), 1, "#1f2328")
		label(&b, ratioRight+16, text, `font-size="13" fill="`+textColour+`"`, r.Text)
		label(&b, ratioRight+70, text, `fill="#59636e"`, r.Note)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func label(b *bytes.Buffer, x, y int, attributes, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" %s>`, x, y, attributes)
	_ = xml.EscapeText(b, []byte(text)) // a buffer takes everything
	b.WriteString("</text>\n")
}

func box(b *bytes.Buffer, x, y, width, height int, colour string) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x, y, width, height, colour)
}

// ratioScale is the range of ratios, as powers of two.
type ratioScale struct{ from, to float64 }

func scaleOf(rows []ratio) ratioScale {
	s := ratioScale{-1, 1}
	for _, r := range rows {
		s.from = min(s.from, math.Floor(math.Log2(min(r.Median, r.Least))))
		s.to = max(s.to, math.Ceil(math.Log2(max(r.Median, r.Most))))
	}
	return s
}

func (s ratioScale) x(ratio float64) int {
	return ratioLeft + int((math.Log2(ratio)-s.from)/(s.to-s.from)*(ratioRight-ratioLeft)+0.5)
}
