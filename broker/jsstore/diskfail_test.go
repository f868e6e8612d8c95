package jsstore

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/httpapi"
)

// brokenDisk fails the syncs of what is below a folder while it is told to.
type brokenDisk struct {
	below  atomic.Pointer[string]
	failed atomic.Int64
}

func (d *brokenDisk) fail(below string) { d.below.Store(&below) }
func (d *brokenDisk) mend()             { d.below.Store(nil) }

func (d *brokenDisk) fsync(f *os.File) error {
	if below := d.below.Load(); below != nil && strings.HasPrefix(f.Name(), *below) {
		d.failed.Add(1)
		return syscall.EIO
	}
	return f.Sync()
}

func blocksOf(dir, stream string) string {
	return filepath.Join(dir, "jetstream", "$G", "streams", stream, "msgs")
}

// lines is a log that tests read.
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

func readiness(s *Store) int {
	api := httpapi.New(broker.New(broker.Parts{Store: s, Config: broker.DefaultConfig()}), httpapi.Options{})
	answer := httptest.NewRecorder()
	api.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return answer.Code
}

// A sync that failed is not made good by one that succeeds: the system may have
// dropped what it could not write. Nothing is confirmed until the next start.
func TestFailedSyncIsRemembered(t *testing.T) {
	dir := t.TempDir()
	var d brokenDisk
	var log lines
	s, stop := runOn(t, dir, Config{SyncDir: dir, fsync: d.fsync, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	stopped := sync.OnceFunc(stop)
	defer stopped()
	makeConsumer(t, s, "ch", "k", broker.Pull)
	appendMessage(t, s, "ch", "before", 0)
	require.NoError(t, s.Schedule(t.Context(), broker.Message{ID: "later", Channel: "ch"}, time.Now().Add(time.Hour)))
	require.Equal(t, http.StatusOK, readiness(s))

	d.fail(blocksOf(dir, "broker_messages"))
	var callers sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		callers.Go(func() {
			_, err := s.Append(t.Context(), broker.Message{ID: id, Channel: "ch"})
			requireDiskFailure(t, err)
		})
	}
	callers.Wait()
	require.Equal(t, int64(1), d.failed.Load(), "it was tried again")
	d.mend()

	_, err := s.Append(t.Context(), broker.Message{ID: "a", Channel: "ch"})
	requireDiskFailure(t, err)
	_, err = s.Append(t.Context(), broker.Message{ID: "after", Channel: "ch"})
	requireDiskFailure(t, err)
	_, err = s.Message(t.Context(), "ch", "after")
	require.ErrorIs(t, err, broker.ErrNotFound, "stored, though nobody will ever hear that it is")
	requireDiskFailure(t, s.CancelScheduled(t.Context(), "ch", "later"))
	requireDiskFailure(t, s.messageWrites.durable(t.Context()))
	requireDiskFailure(t, s.Ready())
	require.Equal(t, http.StatusServiceUnavailable, readiness(s))
	told := log.with("level=ERROR")
	require.Len(t, told, 1)
	require.Contains(t, told[0], blocksOf(dir, "broker_messages"))
	require.Contains(t, told[0], "stream=broker_messages")

	stopped()
	s, stop = runOn(t, dir, Config{SyncDir: dir, fsync: d.fsync})
	defer stop()
	require.Equal(t, http.StatusOK, readiness(s))
	appendMessage(t, s, "ch", "after", 0)
}

func requireDiskFailure(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, syscall.EIO) {
		t.Errorf("not the failure of the disk: %v", err)
		return
	}
	for _, part := range []string{filepath.Join("broker_messages", "msgs"), "look at the disk", "restart the broker"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// The folder of the blocks is part of it: without it a new block has no name.
func TestFailedSyncOfAFolderIsRemembered(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "blocks")
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "1.blk"), []byte("x"), 0o600))
	var failing atomic.Bool
	g := newGroupSync("", "s", disk{fsync: func(f *os.File) error {
		if failing.Load() && f.Name() == folder {
			return syscall.EIO
		}
		return f.Sync()
	}}, slog.New(slog.DiscardHandler))
	g.blocks.dir = folder
	require.NoError(t, g.wait(t.Context()))
	failing.Store(true)
	require.NoError(t, g.wait(t.Context()), "nothing is new in the folder")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "2.blk"), []byte("x"), 0o600))
	require.ErrorIs(t, g.wait(t.Context()), syscall.EIO)
	failing.Store(false)
	require.ErrorIs(t, g.wait(t.Context()), syscall.EIO)
}

// What was not begun has dropped nothing: the next sync has it all.
func TestSyncThatWasNotBegunIsTriedAgain(t *testing.T) {
	g := newGroupSync(t.TempDir(), "s", disk{}, slog.New(slog.DiscardHandler))
	require.Error(t, g.wait(t.Context()), "there is no such folder")
	require.NoError(t, os.MkdirAll(g.blocks.dir, 0o700))
	require.NoError(t, os.WriteFile(g.blocks.path(1), []byte("x"), 0o600))
	require.NoError(t, g.wait(t.Context()))
}

// A disk that became read-only has failed, though no sync was begun.
func TestUnopenedFileOfAFailedDisk(t *testing.T) {
	for _, c := range []struct {
		err    error
		failed bool
	}{
		{syscall.EROFS, true}, {syscall.EIO, true}, {syscall.EMFILE, false}, {syscall.ENFILE, false}, {fs.ErrNotExist, false},
	} {
		err := unopened("1.blk", &os.PathError{Op: "open", Path: "1.blk", Err: c.err})
		_, failed := errors.AsType[*syncFailure](err)
		require.Equal(t, c.failed, failed, "%v", c.err)
		require.ErrorIs(t, err, c.err)
	}
}

// A callback whose outcome cannot be kept is not made.
func TestNoCallbacksAfterTheDiskFailed(t *testing.T) {
	dir := t.TempDir()
	var d brokenDisk
	s, stop := runOn(t, dir, Config{SyncDir: dir, fsync: d.fsync})
	defer stop()
	require.NoError(t, s.Recordable())
	k := makeConsumer(t, s, "ch", "k", broker.Push)
	d.fail(blocksOf(dir, "broker_jobs"))
	m := appendMessage(t, s, "ch", "m", 0)
	_, err := s.PutJob(t.Context(), broker.Job{ID: broker.JobID{Seq: m.Seq, Consumer: k.Number}, Status: broker.Delivered})
	require.ErrorIs(t, err, syscall.EIO)
	d.mend()

	require.ErrorIs(t, s.Recordable(), syscall.EIO)
	require.ErrorContains(t, s.Recordable(), "restart the broker")
}
