package stage

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Logs collects the lines of loggers.
type Logs struct {
	mu    sync.Mutex
	lines []string
}

// Write appends a line.
func (l *Logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// Logger returns a logger that writes to l, from debug level on.
func (l *Logs) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// With returns the lines that contain all of the texts.
func (l *Logs) With(texts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

// Journal records the sequences of the messages that a handler got, in order. The zero value is empty.
type Journal struct {
	mu   sync.Mutex
	seqs []int
}

// Note appends a message, and returns how often it is in the journal now.
func (j *Journal) Note(seq uint64) (times int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seqs = append(j.seqs, int(seq))
	for _, s := range j.seqs {
		if s == int(seq) {
			times++
		}
	}
	return times
}

// All returns all sequences so far.
func (j *Journal) All() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.seqs)
}

// Len returns the number of sequences.
func (j *Journal) Len() int { return len(j.All()) }

// UpTo returns 1, 2, … n.
func UpTo(n int) []int {
	seqs := make([]int, n)
	for i := range seqs {
		seqs[i] = i + 1
	}
	return seqs
}
