package main

import (
	"fmt"
	"math"
	"strconv"
)

// format writes a figure of the metric for a reader.
func (m Metric) format(v float64) string {
	switch m {
	case Rate:
		return short(v)
	case TimePer, CPUPer:
		return duration(v)
	case AllocsPer, CallsPer:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case BytesPer:
		return byteCount(v)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// with writes the median with the extremes behind it.
func (m Metric) with(s Spread) string {
	return fmt.Sprintf("%s (%s–%s)", m.format(s.Median), m.format(s.Min), m.format(s.Max))
}

// short writes three significant digits with k or M.
func short(v float64) string {
	switch {
	case math.Abs(v) >= 999_500:
		return significant(v/1e6) + "M"
	case math.Abs(v) >= 999.5:
		return significant(v/1e3) + "k"
	}
	return significant(v)
}

// byteCount writes a number of bytes with a decimal unit.
func byteCount(v float64) string {
	switch {
	case math.Abs(v) >= 999_500:
		return significant(v/1e6) + " MB"
	case math.Abs(v) >= 999.5:
		return significant(v/1e3) + " kB"
	}
	return significant(v) + " B"
}

// duration writes nanoseconds with a fitting unit.
func duration(ns float64) string {
	switch {
	case ns >= 999_500:
		return significant(ns/1e6) + " ms"
	case ns >= 999.5:
		return significant(ns/1e3) + " µs"
	}
	return significant(ns) + " ns"
}

func significant(v float64) string {
	switch {
	case math.Abs(v) >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case math.Abs(v) >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// times writes a ratio.
func times(v float64) string { return significant(v) + "×" }

func timesWith(s Spread) string {
	return fmt.Sprintf("%s (%s–%s)", times(s.Median), times(s.Min), times(s.Max))
}

// bound writes what a target asks for.
func (t Target) bound() string {
	write := t.Metric.format
	if t.Rival != "" {
		write = times
	}
	if t.AtLeast > 0 {
		return "≥ " + write(t.AtLeast)
	}
	return "≤ " + write(t.AtMost)
}

// value writes the figure that the target judges.
func (v Verdict) value() string {
	if v.Rival != "" {
		return timesWith(v.Value)
	}
	return v.Metric.with(v.Value)
}

// against names the rival, and where there is one the most that it counts for.
func (t Target) against() string {
	switch {
	case t.Rival == "":
		return "–"
	case t.Limit > 0:
		return fmt.Sprintf("%s, at most %s", t.Rival, t.Metric.format(t.Limit))
	}
	return t.Rival
}

func metOrMissed(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}
