package jsstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

// logged is what a store has logged.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// take returns what was logged since the last call.
func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return l.buf.String()
}

func (l *logged) config(dir string) Config {
	return Config{SnapshotDir: dir, Logger: slog.New(slog.NewTextHandler(l, nil))}.withDefaults()
}

// A snapshot that is of no use keeps no broker from starting, and is named with
// what is wrong. The stop after that leaves a good one.
func TestSnapshotThatCannotBeUsed(t *testing.T) {
	replace := func(path string, content []byte) error { return os.WriteFile(path, content, 0o600) }
	for name, c := range map[string]struct {
		spoil func(path string, good []byte) error
		want  string
		stays bool
	}{
		"cannot be opened": {func(path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.Symlink(filepath.Base(path), path))
		}, "too many levels of symbolic links", false},
		"not permitted": {func(path string, _ []byte) error { return os.Chmod(path, 0) }, "permission denied", false},
		"a directory": {func(path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "of somebody"), 0o700))
		}, "it is no file", true},
		"truncated":    {func(path string, good []byte) error { return replace(path, good[:len(good)-9]) }, "damaged", false},
		"empty":        {func(path string, _ []byte) error { return replace(path, nil) }, "damaged", false},
		"bad checksum": {func(path string, good []byte) error { good[len(good)-1] ^= 1; return replace(path, good) }, "its checksum is", false},
		"of another version": {func(path string, good []byte) error {
			binary.BigEndian.PutUint64(good, snapshotMagic-1)
			return replace(path, good)
		}, "of another version", false},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "not permitted" && os.Geteuid() == 0 {
				t.Skip("nothing is forbidden to root")
			}
			dir := t.TempDir()
			var log logged
			cfg := log.config(dir)
			cfg.SyncDir = dir // as a node has it, which syncs the whole folder at a start
			s, stop := runOn(t, dir, cfg)
			makeConsumer(t, s, "ch", "k", broker.Pull)
			appendMessage(t, s, "ch", "m", 0)
			stop()
			path := cfg.snapshotPath()
			good, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, c.spoil(path, good))
			require.NoError(t, os.WriteFile(unfinished(path), good[:10], 0o600), "a stop that was killed")
			log.take()

			s, stop = runOn(t, dir, cfg)
			told := log.take()
			require.Contains(t, told, "the streams are read instead")
			require.Contains(t, told, strconv.Quote(path)[1:len(path)])
			require.Contains(t, told, c.want)
			require.Equal(t, 1, s.CountMessages("ch"))
			k, ok := s.Consumer("ch", "k")
			require.True(t, ok)
			require.Len(t, s.Queued(k.Number, 10), 1)
			require.NoFileExists(t, unfinished(path))
			stop()
			if c.stays {
				require.DirExists(t, filepath.Join(path, "of somebody"))
				require.Contains(t, log.take(), "no snapshot of the index was made")
				return
			}
			require.Empty(t, log.take())
			s, stop = runOn(t, dir, cfg)
			require.Empty(t, log.take(), "the snapshot of a clean stop is used")
			require.Equal(t, 1, s.CountMessages("ch"))
			stop()
		})
	}
}

// A killed stop may leave something in the way that cannot be removed.
func TestUnfinishedSnapshotInTheWay(t *testing.T) {
	dir := t.TempDir()
	var log logged
	cfg := log.config(dir)
	require.NoError(t, os.MkdirAll(filepath.Join(unfinished(cfg.snapshotPath()), "of somebody"), 0o700))
	s, stop := runOn(t, dir, cfg)
	require.Contains(t, log.take(), "is in the way of the next snapshot")
	appendMessage(t, s, "ch", "m", 0)
	stop()
	require.Contains(t, log.take(), "no snapshot of the index was made")
	require.NoFileExists(t, cfg.snapshotPath())
}

// restless is a stream that something happens to before its state is read for the
// second time.
type restless struct {
	jetstream.Stream
	read   int
	happen func()
}

func (r *restless) Info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	if r.read++; r.read == 2 {
		r.happen()
	}
	return r.Stream.Info(ctx, opts...)
}

// A snapshot that something happened to while it was written is not left behind.
func TestChangeWhileTheSnapshotIsWritten(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *Store, k broker.Consumer, seq uint64) error{
		"nothing": nil,
		"a message": func(t *testing.T, s *Store, _ broker.Consumer, _ uint64) error {
			_, err := s.js.Publish(t.Context(), s.cfg.messageSubject(encodeToken("ch"), "late"), nil)
			return err
		},
		"a message deleted": func(t *testing.T, s *Store, _ broker.Consumer, seq uint64) error {
			return s.messageStream.DeleteMsg(t.Context(), seq)
		},
		"a record": func(t *testing.T, s *Store, k broker.Consumer, seq uint64) error {
			done := broker.Job{ID: broker.JobID{Seq: seq, Consumer: k.Number}, Status: broker.Delivered}
			_, err := s.js.Publish(t.Context(), s.cfg.jobSubject(k.Number, fmt.Sprint(seq)), encodeRecord(done))
			return err
		},
		"a consumer deleted": func(t *testing.T, s *Store, k broker.Consumer, _ uint64) error {
			return s.reg.remove(t.Context(), consumerKey(k.Channel, k.ID), k.Revision)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var log logged
			cfg := log.config(dir)
			s, stop := runOn(t, dir, cfg)
			k := makeConsumer(t, s, "ch", "k", broker.Pull)
			m := appendMessage(t, s, "ch", "m", 0)
			appendMessage(t, s, "ch", "another", 0)
			happened := false
			s.messageStream = &restless{Stream: s.messageStream, happen: func() {
				happened = true
				if change != nil {
					require.NoError(t, change(t, s, k, m.Seq))
				}
			}}
			stop()
			require.True(t, happened, "the state is not read again")
			require.NoFileExists(t, unfinished(cfg.snapshotPath()))
			if change == nil {
				require.FileExists(t, cfg.snapshotPath())
				return
			}
			require.NoFileExists(t, cfg.snapshotPath())
			require.Contains(t, log.take(), "the streams have changed while it was written")
		})
	}
}

// bounded tells how long a stop allows for the reading of a state.
type bounded struct {
	jetstream.Stream
	until time.Time
}

func (b *bounded) Info(ctx context.Context, _ ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	b.until, _ = ctx.Deadline()
	return nil, errors.New("no answer")
}

// A stop gives a snapshot up in time, and leaves no part of it.
func TestSnapshotTakesItsTimeAndNoMore(t *testing.T) {
	t.Run("the stop has a limit", func(t *testing.T) {
		dir := t.TempDir()
		s, stop := runOn(t, dir, Config{SnapshotDir: dir})
		asked := &bounded{Stream: s.messageStream}
		s.messageStream = asked
		begin := time.Now()
		stop()
		require.False(t, asked.until.IsZero(), "it has no end")
		require.WithinDuration(t, begin, asked.until, snapshotTimeout)
		require.NoFileExists(t, s.cfg.snapshotPath())
	})
	t.Run("it ends in the middle", func(t *testing.T) {
		x := newIndex()
		for seq := range uint64(20_000) {
			x.addMessage("ch", entry{seq: seq + 1, at: 1}, "")
		}
		path := filepath.Join(t.TempDir(), "broker.index")
		require.NoError(t, os.WriteFile(path, []byte("of before"), 0o600))
		ctx, cancel := context.WithCancelCause(t.Context())
		late := errors.New("the time is over")
		writes := 0
		accepted := false
		err := disk{}.replace(ctx, path, func(f io.Writer) error {
			return writeSnapshot(writerFunc(func(b []byte) (int, error) {
				if writes++; writes == 3 {
					cancel(late)
				}
				return f.Write(b)
			}), storeState{}, x)
		}, func() error { accepted = true; return nil })
		require.ErrorIs(t, err, late)
		require.Equal(t, 3, writes, "it goes on after the end")
		require.False(t, accepted)
		requireAsBefore(t, path)
	})
	t.Run("it ends with the sync", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "broker.index")
		require.NoError(t, os.WriteFile(path, []byte("of before"), 0o600))
		ctx, cancel := context.WithCancel(t.Context())
		err := disk{}.replace(ctx, path, func(f io.Writer) error {
			_, err := f.Write([]byte("whole"))
			return err
		}, func() error { cancel(); return nil })
		require.ErrorIs(t, err, context.Canceled)
		requireAsBefore(t, path)
	})
}

func requireAsBefore(t *testing.T, path string) {
	t.Helper()
	require.NoFileExists(t, unfinished(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "of before", string(content))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
