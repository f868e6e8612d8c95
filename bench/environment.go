package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/bench/internal/report"
	"github.com/jetpull/jetpull/bench/measure"
)

// pings is how many round trips the report's figure is the median of.
const pings = 21

// environment describes where the run takes place.
func environment(s settings, links measure.Links, load string) (report.Environment, error) {
	e := report.Environment{
		Time: time.Now(), Go: runtime.Version(), Client: nats.Version, Server: links.Direct.Conn().ConnectedServerVersion(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.NumCPU(), Load: load,
		Rounds: s.rounds, Payload: s.payload, MaxAckPending: s.maxAckPending,
	}
	var err error
	if e.RoundTrip, err = roundTrip(links.Direct); err != nil {
		return e, err
	}
	e.SlowRoundTrip, err = roundTrip(links.Delayed)
	return e, err
}

// roundTrip measures what the link really takes: the slow link has its delay, and the timers' slack on top.
func roundTrip(link measure.Link) (time.Duration, error) {
	times := make([]time.Duration, pings)
	for i := range times {
		var err error
		if times[i], err = link.Conn().RTT(); err != nil {
			return 0, fmt.Errorf("round trip to %s: %w", link.Conn().ConnectedUrl(), err)
		}
	}
	slices.Sort(times)
	return times[pings/2], nil
}

// loadAverage returns the system's load of the last minute, or nothing where there is no such file.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
