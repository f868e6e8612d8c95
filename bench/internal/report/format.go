package report

import (
	"fmt"
	"math"
	"strconv"

	"github.com/jetpull/jetpull/bench/measure"
)

// format writes a figure of the metric for a reader.
func format(m measure.Metric, v float64) string {
	switch m {
	case measure.Rate:
		return short(v)
	case measure.TimePer, measure.CPUPer:
		return duration(v)
	case measure.AllocsPer, measure.CallsPer:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case measure.BytesPer:
		return byteCount(v)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// formatSpread writes the median with the extremes behind it.
func formatSpread(m measure.Metric, s measure.Spread) string {
	return fmt.Sprintf("%s (%s–%s)", format(m, s.Median), format(m, s.Min), format(m, s.Max))
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

func timesWith(s measure.Spread) string {
	return fmt.Sprintf("%s (%s–%s)", times(s.Median), times(s.Min), times(s.Max))
}

// bound writes what a target asks for.
func bound(t measure.Target) string {
	sign, limit := "≤ ", t.AtMost
	if t.AtLeast > 0 {
		sign, limit = "≥ ", t.AtLeast
	}
	if t.Rival != "" {
		return sign + times(limit)
	}
	return sign + format(t.Metric, limit)
}

// value writes the figure that the target judges.
func value(v measure.Verdict) string {
	if v.Rival != "" {
		return timesWith(v.Value)
	}
	return formatSpread(v.Metric, v.Value)
}

// against names the rival, and where there is one the most that it counts for.
func against(t measure.Target) string {
	switch {
	case t.Rival == "":
		return "–"
	case t.Limit > 0:
		return fmt.Sprintf("%s, at most %s", t.Rival, format(t.Metric, t.Limit))
	}
	return t.Rival
}

func metOrMissed(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}
