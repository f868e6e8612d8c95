// Package report writes what was measured: as Markdown, as JSON, as a chart, and into the project's documents.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jetpull/jetpull/bench/measure"
)

// Report is a whole run: what was measured, where, and the figures. It is written as JSON in full.
type Report struct {
	Environment Environment          `json:"environment"`
	Against     string               `json:"against,omitempty"` // the other build, where two builds were compared
	Cases       []measure.CaseResult `json:"cases"`
	Idle        []measure.IdleResult `json:"idle,omitempty"`
}

// Environment is where the figures were taken.
type Environment struct {
	Time          time.Time     `json:"time"`
	Go            string        `json:"go"`
	Client        string        `json:"nats_go"`
	Server        string        `json:"nats_server"`
	System        string        `json:"system"`
	Processors    int           `json:"processors"`
	Load          string        `json:"load,omitempty"` // load average before the run
	Rounds        int           `json:"rounds"`
	Payload       int           `json:"payload"`
	MaxAckPending int           `json:"max_ack_pending"` // 0: the server's default
	RoundTrip     time.Duration `json:"round_trip_ns"`
	SlowRoundTrip time.Duration `json:"slow_round_trip_ns"`
}

// WriteFiles writes the report into dir, which it creates if need be: against.md and against.json where it compares two
// builds, else bench.md, bench.svg and bench.json.
func WriteFiles(report *Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("folder for the report: %w", err)
	}
	if report.Against != "" {
		return errors.Join(
			writeFile(filepath.Join(dir, "against.json"), report, WriteJSON),
			writeFile(filepath.Join(dir, "against.md"), report, WriteComparison),
		)
	}
	return errors.Join(
		writeFile(filepath.Join(dir, "bench.json"), report, WriteJSON),
		writeFile(filepath.Join(dir, "bench.md"), report, WriteMarkdown),
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

// WriteJSON writes the report with every sample.
func WriteJSON(w io.Writer, report *Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// Read reads a report that WriteFiles has written as JSON.
func Read(path string) (*Report, error) {
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
