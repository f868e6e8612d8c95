package jetpull

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// run is a Consume under way.
type run struct {
	s      *stage
	cancel context.CancelFunc
	done   chan error
	errs   *errorList
}

// consume starts Consume on the stage's subscription.
func (s *stage) consume(h Handler, opts ...Option) *run {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r := &run{s: s, cancel: cancel, done: make(chan error, 1), errs: &errorList{}}
	opts = append([]Option{Logger(slog.New(slog.NewTextHandler(s.logs, nil))), OnError(r.errs.add)}, opts...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- s.sub.Consume(ctx, h, opts...)
	}()
	s.t.Cleanup(func() { // so that a test that fails does not end in a deadlock
		cancel()
		<-ended
	})
	synctest.Wait()
	return r
}

// stop ends Consume and returns its result.
func (r *run) stop() error {
	r.cancel()
	return r.result()
}

// result waits for the end of Consume.
func (r *run) result() error {
	r.s.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(10 * time.Minute):
		r.s.t.Fatal("Consume does not end")
		return nil
	}
}

// running says whether Consume goes on.
func (r *run) running() bool { return len(r.done) == 0 }

type errorList struct {
	mu   sync.Mutex
	errs []error
}

func (l *errorList) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

func (l *errorList) all() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.errs)
}

// logLines are the lines that a logger has written.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

// with returns the lines that contain text.
func (l *logLines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// journal notes which messages a handler got, in order.
type journal struct {
	mu   sync.Mutex
	seqs []int
}

func (j *journal) note(m *Msg) (times int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	seq := int(m.Sequence())
	j.seqs = append(j.seqs, seq)
	for _, s := range j.seqs {
		if s == seq {
			times++
		}
	}
	return times
}

func (j *journal) all() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.seqs)
}

func (j *journal) len() int { return len(j.all()) }

// handler notes each message and takes d for it.
func (j *journal) handler(d time.Duration) Handler {
	return func(_ context.Context, m *Msg) error {
		j.note(m)
		if d > 0 {
			<-time.After(d)
		}
		return nil
	}
}

// upTo is 1, 2, … n.
func upTo(n int) (seqs []int) {
	for i := range n {
		seqs = append(seqs, i+1)
	}
	return seqs
}

func requireNear(t *testing.T, want, got, within time.Duration, what string, args ...any) {
	t.Helper()
	require.InDelta(t, want.Seconds(), got.Seconds(), within.Seconds(), fmt.Sprintf(what, args...))
}
