package main

import (
	"math"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
)

// groupFlags are the terms of a priority group.
type groupFlags struct {
	group                     string
	minPending, minAckPending int64
	priority                  int
}

func (f *groupFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.group, "group", "", "priority `GROUP` to pull in; a consumer with groups needs one")
	flags.Int64Var(&f.minPending, "min-pending", 0, "pull only while at least `N` messages are pending (overflow)")
	flags.Int64Var(&f.minAckPending, "min-ack-pending", 0, "pull only while at least `N` messages are unacknowledged (overflow)")
	flags.IntVar(&f.priority, "priority", 0, "`PRIORITY` of the pulls, 0 first to 9 last (prioritized)")
}

// check refuses what no group could be.
func (f *groupFlags) check(flags *pflag.FlagSet) error {
	if flags.Changed("group") {
		if err := client.CheckGroup(f.group); err != nil {
			return err
		}
	}
	if flags.Changed("min-pending") {
		if err := client.InRange("--min-pending", f.minPending, 1, math.MaxInt64); err != nil {
			return err
		}
	}
	if flags.Changed("min-ack-pending") {
		if err := client.InRange("--min-ack-pending", f.minAckPending, 1, math.MaxInt64); err != nil {
			return err
		}
	}
	return client.InRange("--priority", f.priority, 0, 9)
}

// options are the flags that were given, so that the library judges every one of
// them.
func (f *groupFlags) options(flags *pflag.FlagSet) []jetpull.Option {
	var opts []jetpull.Option
	for name, opt := range map[string]jetpull.Option{
		"group":           jetpull.Group(f.group),
		"min-pending":     jetpull.MinPending(f.minPending),
		"min-ack-pending": jetpull.MinAckPending(f.minAckPending),
		"priority":        jetpull.Priority(f.priority),
	} {
		if flags.Changed(name) {
			opts = append(opts, opt)
		}
	}
	return opts
}
