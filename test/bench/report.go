package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// pings is how many round trips the report's figure is the median of.
const pings = 21

// writeFiles writes the report in its three forms into dir, which it creates if need be.
func writeFiles(report *Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder for the report: %w", err)
	}
	return errors.Join(
		writeFile(filepath.Join(dir, "bench.json"), func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(report)
		}),
		writeFile(filepath.Join(dir, "bench.md"), func(w io.Writer) error { return writeMarkdown(w, report) }),
		writeFile(filepath.Join(dir, "bench.svg"), func(w io.Writer) error { return writeSVG(w, report) }),
	)
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// environment describes where the run takes place.
func (r *Runner) environment(load string) (Environment, error) {
	e := Environment{
		Time: time.Now(), Go: runtime.Version(), Client: nats.Version, Server: r.control.ConnectedServerVersion(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.NumCPU(), Load: load,
		Rounds: r.rounds, Payload: r.payload, MaxAckPending: r.maxAckPending,
	}
	var err error
	if e.RoundTrip, err = roundTrip(r.servers.Direct); err != nil {
		return e, err
	}
	e.SlowRoundTrip, err = roundTrip(r.servers.Delayed)
	return e, err
}

// roundTrip measures what the link really takes: the slow link has its delay, and the timers' slack on top.
func roundTrip(url string) (time.Duration, error) {
	conn, err := nats.Connect(url, nats.Name("bench-rtt"))
	if err != nil {
		return 0, fmt.Errorf("connect to %s: %w", url, err)
	}
	defer conn.Close()
	times := make([]float64, pings)
	for i := range times {
		rtt, err := conn.RTT()
		if err != nil {
			return 0, fmt.Errorf("round trip to %s: %w", url, err)
		}
		times[i] = float64(rtt)
	}
	return time.Duration(median(times)), nil
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
