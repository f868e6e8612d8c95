package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/natsembed"
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

// DefaultSync is how often the server of a user's data syncs. Its clients publish over TCP, so they cannot wait for a group sync.
const DefaultSync = natsembed.Sync(2 * time.Second)

// Sync adds the flag --sync for an embedded server.
func Sync(flags *pflag.FlagSet, sync *natsembed.Sync) {
	*sync = DefaultSync
	const usage = "`WHEN` the embedded server syncs to disk: each, which is before it acknowledges a message, or an interval"
	flags.Func("sync", usage, func(text string) error {
		given, err := natsembed.ParseSync(text)
		if err != nil || given == natsembed.SyncGroup {
			return fmt.Errorf("it is neither each nor an interval of at least 10ms, such as %v", time.Duration(DefaultSync))
		}
		*sync = given
		return nil
	})
	flags.Lookup("sync").DefValue = time.Duration(DefaultSync).String()
}

// Synced says what a loss of power takes from an embedded server.
func Synced(sync natsembed.Sync) string {
	switch sync {
	case natsembed.SyncEach:
		return "synced at each message"
	case natsembed.SyncGroup:
		sync = DefaultSync
	}
	return fmt.Sprintf("synced every %v: a loss of power takes what was stored since", time.Duration(sync))
}

// Time adds a flag for a time.
func Time(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	flags.TimeVar(at, name, time.Time{}, []string{time.RFC3339}, usage+" `TIME`, such as 2027-01-31T18:00:00Z")
}

// Future is Time, and refuses a time in the past.
func Future(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	Time(flags, at, name, usage)
	Checked(flags, name, func() error {
		if !at.After(time.Now()) {
			return fmt.Errorf("--%s %s is in the past; give a later time", name, at.Format(time.RFC3339))
		}
		return nil
	})
}

// Past adds a flag for a time, or how long ago that was.
func Past(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	Time(flags, at, name, usage)
	f := flags.Lookup(name)
	f.Usage, f.Value = usage+" `TIME`, such as 2026-01-02T15:04:05Z, or 1h for an hour ago", past{f.Value}
}

// past is the value of a flag with a time, which can be given as how long ago that was.
type past struct{ pflag.Value }

// Type makes the error of a value that of Set.
func (past) Type() string { return "TIME" }

// Set reads a time or a duration.
func (p past) Set(text string) error {
	if ago, err := ParseDuration(text); err == nil && ago >= 0 {
		text = time.Now().UTC().Add(-ago).Format(time.RFC3339Nano)
	}
	if p.Value.Set(text) != nil {
		return errors.New("it is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 1h")
	}
	return nil
}
