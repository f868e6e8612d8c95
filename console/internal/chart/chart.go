// Package chart computes small charts of the last hour, and larger charts of up to a day. A template draws them as SVG with presentation attributes,
// so they need neither scripts nor style sheets.
package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Series contains values up to End, oldest first and evenly spaced over Span. NaN is a gap.
type Series struct {
	Values []float64
	End    time.Time
	Span   time.Duration
}

// Chart is a line over a span of time, in the coordinates of its viewBox.
type Chart struct {
	Title string
	// Unit is the unit of the values, such as "messages".
	Unit string
	// Width and Height are the size of the viewBox.
	Width, Height int
	// Line and Area are the data of two SVG paths. Gaps in the values are gaps in the line.
	Line, Area string
	// Now, Least and Most are the last, the least and the greatest value, formatted. They are empty while there are no values.
	Now, Least, Most string
	// Exact has the same values without rounding.
	Exact string
	// Span is the time that the chart shows, which may be shorter at first. Begin, Middle and End are its times.
	Span               string
	Begin, Middle, End time.Time
	// Top is the value at the upper edge, and Scale is Top formatted. The value at the lower edge is 0.
	Top   float64
	Scale string
	// Bound is the limit, formatted. It is empty if there is none.
	Bound string
	// Small charts have no labels.
	Small bool
	// Limit is the y coordinate of a horizontal line, such as for a rate limit. It is negative if there is none.
	Limit float64
}

const (
	smallWidth, smallHeight = 90, 18
	largeWidth, largeHeight = 360, 72
	// margin keeps a line of two units within the viewBox.
	margin = 1.5
)

// Small returns a chart for a cell of a list.
func Small(title string, values []float64) *Chart {
	c := line(title, Series{Values: values, Span: time.Hour}, smallWidth, smallHeight, 0)
	c.Small = true
	return &c
}

// Large returns a chart for a page.
func Large(title, unit string, s Series) Chart { return Against(title, unit, s, 0) }

// Against returns a chart for a page with a horizontal line at a limit.
func Against(title, unit string, s Series, limit float64) Chart {
	c := line(title, s, largeWidth, largeHeight, limit)
	c.Unit = unit
	return c
}

// line draws a series. The axis begins at 0. It does not draw a limit far above all values, because the values' line would be flat.
func line(title string, s Series, width, height int, limit float64) Chart {
	c := Chart{Title: title, Width: width, Height: height, Limit: -1}
	if limit > 0 {
		c.Bound = number(limit)
	}
	values := recent(s.Values)
	span := s.Span * time.Duration(len(values)) / time.Duration(max(1, len(s.Values)))
	switch hours := int(s.Span / time.Hour); {
	case len(values) < len(s.Values):
		c.Span = fmt.Sprintf("%d min", int(span.Round(time.Minute)/time.Minute))
	case hours > 1:
		c.Span = fmt.Sprintf("%d h", hours)
	default:
		c.Span = "hour"
	}
	c.Begin, c.Middle, c.End = s.End.Add(-span), s.End.Add(-span/2), s.End
	least, most, last, known := math.Inf(1), 0.0, 0.0, false
	for _, v := range values {
		if !math.IsNaN(v) {
			least, most, last, known = min(least, v), max(most, v), v, true
		}
	}
	if !known {
		return c
	}
	draw := limit > 0 && most*4 >= limit
	top := round(most)
	if draw {
		top = round(max(most, limit))
	}
	c.Top, c.Scale = top, number(top)
	y := func(v float64) float64 { return float64(height) - margin - v/top*(float64(height)-2*margin) }
	x := func(i int) float64 { return float64(i) / float64(max(1, len(values)-1)) * float64(width) }
	if draw {
		c.Limit = y(limit)
	}
	for i := 0; i < len(values); i++ {
		var points []string
		first := x(i)
		for ; i < len(values) && !math.IsNaN(values[i]); i++ {
			points = append(points, fmt.Sprintf("%.1f %.1f", x(i), y(values[i])))
		}
		if len(points) == 0 {
			continue
		}
		path := strings.Join(points, "L")
		c.Area += fmt.Sprintf("M%.1f %dL%sL%.1f %dZ", first, height, path, x(i-1), height)
		if len(points) == 1 {
			path += "h0.1" // draws a single point as a dot
		}
		c.Line += "M" + path
	}
	c.Now, c.Least, c.Most = number(last), number(least), number(most)
	exact := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 32) } // samples are stored as float32
	c.Exact = fmt.Sprintf("now %s, lowest %s, highest %s", exact(last), exact(least), exact(most))
	return c
}

// round returns the least number that is not below v and is a digit, 1.5 or 2.5 times a power of ten. It is at least 1.
func round(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(v, 1))))
	for _, digit := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8} {
		if digit*unit >= v && (digit*unit == math.Trunc(digit*unit)) {
			return digit * unit
		}
	}
	return 10 * unit
}

// recent removes the gap at the start, so that the values of the first minutes are visible. It keeps at least a thirtieth, which is two minutes of an
// hour.
func recent(values []float64) []float64 {
	first := 0
	for first < len(values) && math.IsNaN(values[first]) {
		first++
	}
	return values[min(first, len(values)-len(values)/30):]
}

func number(v float64) string {
	switch {
	case v >= 1e9:
		return strconv.FormatFloat(v/1e9, 'f', 1, 64) + " G"
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 1, 64) + " M"
	case v >= 10_000:
		return strconv.FormatFloat(v/1e3, 'f', 1, 64) + " k"
	case v >= 1000: // as lists do
		return fmt.Sprintf("%d,%03d", int(v+0.5)/1000, int(v+0.5)%1000)
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
