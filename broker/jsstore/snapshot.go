package jsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
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

const (
	// snapshotWait bounds the wait for the last news from the streams at the end.
	snapshotWait = 2 * time.Second
	// snapshotTimeout bounds how long a stop takes over the snapshot. A million jobs
	// take a second; a disk that needs longer makes the next start take longer.
	snapshotTimeout = 10 * time.Second
)

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

// storeState is of the messages, the records and the registry: the index has no
// records of a consumer that was deleted, so that it is of no use to a store that
// has the consumer back.
type storeState [3]streamState

func (s *Store) state(ctx context.Context) (state storeState, err error) {
	registry, err := s.js.Stream(ctx, "KV_"+s.cfg.registry())
	if err != nil {
		return state, fmt.Errorf("read the state of the registry: %w", err)
	}
	for i, stream := range []jetstream.Stream{s.messageStream, s.jobStream, registry} {
		info, err := stream.Info(ctx)
		if err != nil {
			return state, fmt.Errorf("read the state of a stream: %w", err)
		}
		state[i] = stateOf(info)
	}
	return state, nil
}

func (c Config) snapshotPath() string { return filepath.Join(c.SnapshotDir, c.Name+".index") }

// unfinished is the name of a file while it is written.
func unfinished(path string) string { return path + ".new" }

// restore takes the snapshot into the index, if there is one of the state that
// the streams have. Whatever is wrong with it, the streams have it all.
func (s *Store) restore(ctx context.Context) error {
	if s.cfg.SnapshotDir == "" {
		return nil
	}
	now, err := s.state(ctx)
	if err != nil {
		return err
	}
	path := s.cfg.snapshotPath()
	if err := os.Remove(unfinished(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("what a stop left unfinished that was killed is in the way of the next snapshot of the index: remove it by hand", "error", err)
	}
	restored, err := takeSnapshot(path, now, s.cfg.disk())
	switch {
	case errors.Is(err, errNoSnapshot):
		return nil
	case errors.Is(err, errSnapshotState):
		s.log.Info("the streams are read, which takes longer than a snapshot of the index", "file", path, "reason", err)
		return nil
	case err != nil:
		s.log.Warn("the snapshot of the index cannot be used: the streams are read instead, which takes longer", "file", path, "error", err)
		return nil
	}
	restored.into(s.index)
	s.messagesSeen.reach(now[0].last)
	s.jobsSeen.reach(now[1].last)
	return nil
}

var errNoSnapshot = errors.New("there is no snapshot of the index")

// takeSnapshot reads a snapshot and removes its file. One that stays is not used:
// see above.
func takeSnapshot(path string, now storeState, d disk) (*snapshot, error) {
	restored, err := readSnapshotFile(path, now)
	if errors.Is(err, errNoSnapshot) || errors.Is(err, errNotAFile) {
		return nil, err
	}
	if removeErr := errors.Join(os.Remove(path), d.folder(filepath.Dir(path))); removeErr != nil {
		return nil, errors.Join(err, fmt.Errorf("remove it: %w: remove it by hand", removeErr))
	}
	return restored, err
}

var errNotAFile = errors.New("it is no file: remove it, or the next stop cannot leave a snapshot either")

func readSnapshotFile(path string, now storeState) (*snapshot, error) {
	// Whatever is no file may not even end when it is read.
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errNoSnapshot
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: its mode is %s", errNotAFile, info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	restored, err := readSnapshot(f, now)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return restored, f.Close()
}

// saveSnapshot writes the index to a file when nothing is written any more. The
// server may still broadcast what is due, and a request that was cut may have
// arrived: with a change meanwhile nobody knows which state the index was of, and
// a power failure could bring back the one that the file names.
func (s *Store) saveSnapshot(ctx context.Context) error {
	state, err := s.caughtUp(ctx)
	if err != nil {
		return err
	}
	return s.cfg.disk().replace(ctx, s.cfg.snapshotPath(), func(f io.Writer) error {
		return writeSnapshot(f, state, s.index)
	}, func() error {
		now, err := s.state(ctx)
		if err == nil && now != state {
			err = errors.New("the streams have changed while it was written")
		}
		return err
	})
}

// caughtUp returns the state of the streams when the index has all news of it.
func (s *Store) caughtUp(ctx context.Context) (storeState, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotWait)
	defer cancel()
	state, err := s.state(ctx)
	if err != nil {
		return state, err
	}
	if err := errors.Join(s.messagesSeen.wait(ctx, state[0].last), s.jobsSeen.wait(ctx, state[1].last)); err != nil {
		return state, fmt.Errorf("wait for the last news from the streams: %w", err)
	}
	// What was deleted is no news. A delete whose answer was lost, or a prune that
	// was cut short, has left it in the index.
	if has := s.index.stored(); has != state[0].messages {
		return state, fmt.Errorf("the index has %d messages and schedules, and the stream %d", has, state[0].messages)
	}
	return state, nil
}

// stored is how many messages the stream has, going by the index.
func (x *index) stored() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := 0
	for _, c := range x.channels {
		n += c.messages.len()
		for _, e := range c.scheduled {
			if e.message == 0 {
				n++
			}
		}
	}
	return uint64(n)
}

// replace writes a file beside its place and puts it there when it is whole
// and on disk, and accept agrees. When ctx ends before, it leaves nothing.
func (d disk) replace(ctx context.Context, path string, write func(io.Writer) error, accept func() error) error {
	f, err := os.OpenFile(unfinished(path), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = write(boundWriter{ctx, f})
	if err == nil && ctx.Err() == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = accept()
	}
	// A sync is not cut short. What comes after it is.
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = os.Rename(unfinished(path), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished(path)))
	}
	return d.folder(filepath.Dir(path))
}

// boundWriter takes nothing after the end of ctx.
type boundWriter struct {
	ctx context.Context
	to  io.Writer
}

func (w boundWriter) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.to.Write(b)
}
