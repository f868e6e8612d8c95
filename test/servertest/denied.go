package servertest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Log stores what is written to it. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Denied is a system whose user lacks a permission.
type Denied[N any] struct {
	Node  *N // nil if it did not start
	Log   *Log
	named string
}

// StartLimited starts a system on a server whose user has permissions, except that for a subject. It returns when the start has ended. If the
// log names the subject but the start continues, it is cancelled. If the system did not start, the log must name the subject.
func StartLimited[N any](tb testing.TB, permissions, subject string, start func(ctx context.Context, url string, log *slog.Logger) (*N, error),
) *Denied[N] {
	tb.Helper()
	srv := RunServer(tb, WithConfig(PartConfig(permissions)))
	d := &Denied[N]{Log: &Log{}, named: ` to \"` + Literal(subject)}
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	started := make(chan *N, 1)
	go func() {
		n, err := start(ctx, srv.PartURL(), slog.New(slog.NewTextHandler(d.Log, nil)))
		if err != nil {
			n = nil
		}
		started <- n
	}()
	ended := false
	eventually(tb, waitTimeout, "the start", func() error {
		select {
		case d.Node = <-started:
			ended = true
		default:
			if !d.Named() {
				return errors.New("it neither starts nor says why")
			}
		}
		return nil
	})
	if !ended { // the start would retry until its timeout
		cancel()
		d.Node = <-started
	}
	require.True(tb, d.Node != nil || d.Named(), d.Log.String())
	return d
}

// Named reports whether the log names the subject, at the level of warnings.
func (d *Denied[N]) Named() bool {
	for line := range strings.Lines(d.Log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "Permissions Violation") && strings.Contains(line, d.named) {
			return true
		}
	}
	return false
}
