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

// writeFiles writes the report into dir, which it creates if need be: against.md and against.json where it compares two
// builds, else bench.md, bench.svg and bench.json.
func writeFiles(report *Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder for the report: %w", err)
	}
	if report.Against != "" {
		return errors.Join(
			writeFile(filepath.Join(dir, "against.json"), report, writeJSON),
			writeFile(filepath.Join(dir, "against.md"), report, writeComparison),
		)
	}
	return errors.Join(
		writeFile(filepath.Join(dir, "bench.json"), report, writeJSON),
		writeFile(filepath.Join(dir, "bench.md"), report, writeMarkdown),
		writeFile(filepath.Join(dir, "bench.svg"), report, writeSVG),
	)
}

func writeFile(path string, report *Report, write func(io.Writer, *Report) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f, report), f.Close())
}

func writeJSON(w io.Writer, report *Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

func readReport(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	report := &Report{}
	if err := json.Unmarshal(text, report); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return report, nil
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
