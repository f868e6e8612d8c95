package jsstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A snapshot is the index in a file. The last thing that a store on an embedded
// server does is to write one, and the next to open takes it instead of reading
// all the streams, which takes seconds for a million messages.
//
// It is never trusted further than the streams bear it out: it says which state
// of them it is of, and with any other it is not used. It is removed before the
// store is written to, so that it can never be of another state that looks the
// same, such as one after a power failure that took some messages back.

// snapshotWait bounds the wait for the last news from the streams at the end.
const snapshotWait = 2 * time.Second

// streamState tells one state of a stream from all others.
type streamState struct {
	created, lastTime             int64 // ns
	first, last, messages, absent uint64
}

func stateOf(info *jetstream.StreamInfo) streamState {
	s := info.State
	return streamState{
		created: info.Created.UnixNano(), lastTime: unixNano(s.LastTime),
		first: s.FirstSeq, last: s.LastSeq, messages: s.Msgs, absent: uint64(s.NumDeleted),
	}
}

// streamStates are those of the messages and of the records.
func (s *Store) streamStates(ctx context.Context) (states [2]streamState, err error) {
	for i, stream := range []jetstream.Stream{s.messageStream, s.jobStream} {
		info, err := stream.Info(ctx)
		if err != nil {
			return states, fmt.Errorf("read the state of a stream: %w", err)
		}
		states[i] = stateOf(info)
	}
	return states, nil
}

func (c Config) snapshotPath() string { return filepath.Join(c.SnapshotDir, c.Name+".index") }

// restore takes the snapshot into the index, if there is one of the state that
// the streams have.
func (s *Store) restore(ctx context.Context) error {
	if s.cfg.SnapshotDir == "" {
		return nil
	}
	path := s.cfg.snapshotPath()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the snapshot of the index: %w", err)
	}
	now, err := s.streamStates(ctx)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	restored, reason := readSnapshot(f, now)
	if err := errors.Join(f.Close(), os.Remove(path), s.cfg.disk().folder(s.cfg.SnapshotDir)); err != nil {
		return fmt.Errorf("remove the snapshot of the index: %w", err)
	}
	if reason != nil {
		s.log.Info("the streams are read, which takes longer than a snapshot of the index", "reason", reason)
		return nil
	}
	restored.into(s.index)
	s.messagesSeen.reach(now[0].last)
	s.jobsSeen.reach(now[1].last)
	return nil
}

// saveSnapshot writes the index to a file when nothing is written any more.
func (s *Store) saveSnapshot() error {
	ctx, cancel := context.WithTimeout(context.Background(), snapshotWait)
	defer cancel()
	states, err := s.streamStates(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(s.messagesSeen.wait(ctx, states[0].last), s.jobsSeen.wait(ctx, states[1].last)); err != nil {
		return fmt.Errorf("wait for the last news from the streams: %w", err)
	}
	path := s.cfg.snapshotPath()
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(writeSnapshot(f, states, s.index), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return s.cfg.disk().folder(s.cfg.SnapshotDir)
}
