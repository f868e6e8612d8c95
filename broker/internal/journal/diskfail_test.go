package journal

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/httpapi"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/natstest/power"
)

// lines is a log for tests.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with returns the lines that contain a text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func partsOf(s *Store) work.Parts {
	return work.Parts{
		Messages: s.Messages, Records: s.Jobs,
		Index: s.Index, Replays: s.Replays, Shards: s.Shards, Health: s, Full: func() error { return nil }, Permitted: func() error { return nil },
	}
}

func readiness(s *Store) int {
	api := httpapi.New(work.New(partsOf(s)), s.Directory, httpapi.Options{Logger: slog.New(slog.DiscardHandler), Stopping: context.Background()})
	answer := httptest.NewRecorder()
	api.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return answer.Code
}

// A sync that succeeds does not undo one that failed: the system may have dropped unwritten data. Nothing is confirmed until the
// next start.
func TestFailedSyncIsRemembered(t *testing.T) {
	dir := t.TempDir()
	var d power.Disk
	var log lines
	s, stop := runOn(t, dir, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, &d)
	stopped := sync.OnceFunc(stop)
	defer stopped()
	makeConsumer(t, s, "ch", "k", domain.Pull)
	appendMessage(t, s, "ch", "before", 0)
	require.NoError(t, s.Messages.Schedule(t.Context(), domain.Message{ID: "later", Channel: "ch"}, time.Now().Add(time.Hour)))
	require.Equal(t, http.StatusOK, readiness(s))

	d.Fail(power.Blocks(dir, "broker_messages"))
	var callers sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		callers.Go(func() {
			_, err := s.Messages.Append(t.Context(), domain.Message{ID: id, Channel: "ch"})
			requireDiskFailure(t, err)
		})
	}
	callers.Wait()
	require.Equal(t, 1, d.Failed(), "it was tried again")
	d.Recover()

	_, err := s.Messages.Append(t.Context(), domain.Message{ID: "a", Channel: "ch"})
	requireDiskFailure(t, err)
	_, err = s.Messages.Append(t.Context(), domain.Message{ID: "after", Channel: "ch"})
	requireDiskFailure(t, err)
	_, err = s.Messages.Message(t.Context(), "ch", "after")
	require.ErrorIs(t, err, domain.ErrNotFound, "stored, though nobody will ever hear that it is")
	requireDiskFailure(t, s.Messages.CancelScheduled(t.Context(), "ch", "later"))
	requireDiskFailure(t, s.messageWrites.DurableAt(t.Context(), 0))
	requireDiskFailure(t, s.Ready())
	require.Equal(t, http.StatusServiceUnavailable, readiness(s))
	logged := log.with("level=ERROR")
	require.Len(t, logged, 1)
	require.Contains(t, logged[0], power.Blocks(dir, "broker_messages"))
	require.Contains(t, logged[0], "stream=broker_messages")

	stopped()
	s, stop = runOn(t, dir, Config{}, &d)
	defer stop()
	require.Equal(t, http.StatusOK, readiness(s))
	appendMessage(t, s, "ch", "after", 0)
}

func requireDiskFailure(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, domain.ErrUnavailable) || !errors.Is(err, syscall.EIO) {
		t.Errorf("not the failure of the disk: %v", err)
		return
	}
	for _, part := range []string{filepath.Join("broker_messages", "msgs"), "look at the disk", "restart the process"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// No callback is made whose outcome cannot be stored.
func TestNoCallbacksAfterTheDiskFailed(t *testing.T) {
	dir := t.TempDir()
	var d power.Disk
	s, stop := runOn(t, dir, Config{}, &d)
	defer stop()
	require.NoError(t, s.Recordable())
	k := makeConsumer(t, s, "ch", "k", domain.Push)
	d.Fail(power.Blocks(dir, "broker_jobs"))
	m := appendMessage(t, s, "ch", "m", 0)
	_, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Delivered})
	require.ErrorIs(t, err, syscall.EIO)
	d.Recover()

	require.ErrorIs(t, s.Recordable(), syscall.EIO)
	require.ErrorContains(t, s.Recordable(), "restart the process")
}
