package cli

import (
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

var dayUnit = regexp.MustCompile(`(\d+(?:\.\d+)?)([dw])`)

// inHours writes the days and the weeks of a duration as hours, which Go knows.
func inHours(text string) string {
	return dayUnit.ReplaceAllStringFunc(text, func(part string) string {
		last := len(part) - 1
		n, _ := strconv.ParseFloat(part[:last], 64) // digits
		hours := n * 24
		if part[last] == 'w' {
			hours *= 7
		}
		return strconv.FormatFloat(hours, 'f', -1, 64) + "h"
	})
}

// ParseDuration is [time.ParseDuration], and knows days and weeks, as in 1d12h.
func ParseDuration(text string) (time.Duration, error) { return time.ParseDuration(inHours(text)) }

// withDays is the value of a flag for durations that takes days and weeks.
type withDays struct{ pflag.Value }

// Set reads a duration, or a list.
func (d withDays) Set(text string) error { return d.Value.Set(inHours(text)) }

// allowDays has the flags for durations take days and weeks.
func allowDays(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if kind := f.Value.Type(); kind == "duration" || kind == "durationSlice" {
			f.Value = withDays{f.Value}
			hideNothing(f)
		}
	})
}
