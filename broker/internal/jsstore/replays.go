package jsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

// Replays are in the registry's bucket, which every node follows.

const replayPrefix = "r."

// replayKey is the place of a replay, in which it follows an older one of its consumer.
func replayKey(consumer uint32, number uint64) string {
	return replayPrefix + strconv.FormatUint(uint64(consumer), 10) + "." + strconv.FormatUint(number%domain.KeptReplays, 10)
}

// replayLists are the replays in memory.
type replayLists struct {
	of      map[uint32]map[string]domain.Replay // by consumer, then key
	running map[string]domain.Replay            // by key
}

// put takes what a key holds now.
func (l replayLists) put(k string, r domain.Replay) {
	if l.of[r.Consumer] == nil {
		l.of[r.Consumer] = map[string]domain.Replay{}
	}
	l.of[r.Consumer][k] = r
	delete(l.running, k)
	if r.State == domain.ReplayRunning {
		l.running[k] = r
	}
}

// forget removes those of a consumer.
func (l replayLists) forget(consumer uint32) {
	for k := range l.of[consumer] {
		delete(l.running, k)
	}
	delete(l.of, consumer)
}

// takeReplay takes what the bucket holds for a key. r.mu is not held. A replay is gone with its consumer only.
func (r *registry) takeReplay(k string, revision uint64, value []byte) error {
	if value == nil {
		return nil
	}
	var replay domain.Replay
	if err := json.Unmarshal(value, &replay); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.replays.of[replay.Consumer][k].Revision < revision {
		replay.Revision = revision
		r.replays.put(k, replay)
	}
	return nil
}

// replays keeps replays and finds the jobs for them.
type replays struct{ *base }

// SaveReplay implements domain.Replays.
func (s *replays) SaveReplay(ctx context.Context, r domain.Replay) (domain.Replay, error) {
	if err := s.registryWrites.Failure(); err != nil {
		return r, err
	}
	value, err := json.Marshal(r)
	if err != nil {
		return r, fmt.Errorf("encode replay %s: %w", r.ID(), err)
	}
	k := replayKey(r.Consumer, r.Number)
	place := r
	if r.Revision == 0 {
		s.reg.mu.RLock()
		place = s.reg.replays.of[r.Consumer][k]
		s.reg.mu.RUnlock()
		if place.Number >= r.Number {
			return r, fmt.Errorf("%w: replay %s", domain.ErrConflict, r.ID())
		}
	}
	revision, err := s.reg.write(ctx, k, value, place.Revision)
	if err != nil {
		return r, err
	}
	r.Revision = revision
	return r, errors.Join(s.reg.takeReplay(k, revision, value), s.registryWrites.DurableAt(ctx, revision))
}

// RefreshReplay implements domain.Replays.
func (s *replays) RefreshReplay(ctx context.Context, consumer uint32, number uint64) (r domain.Replay, err error) {
	bucket, k := s.cfg.registry(), replayKey(consumer, number)
	raw, err := s.AskLeader(ctx, "KV_"+bucket, "$KV."+bucket+"."+k)
	if errors.Is(err, domain.ErrNotFound) {
		s.reg.mu.RLock()
		known := s.reg.replays.of[consumer][k].Revision
		s.reg.mu.RUnlock()
		if known > 0 { // from a replica that may be ahead of the leader
			raw, err = s.AtLeader(ctx, "KV_"+bucket, known)
		}
	}
	if err != nil {
		return r, fmt.Errorf("replay %d of consumer %d: %w", number, consumer, err)
	}
	if err := json.Unmarshal(raw.Data, &r); err != nil {
		return r, fmt.Errorf("replay %d of consumer %d: %w", number, consumer, err)
	}
	r.Revision = raw.Sequence
	err = s.reg.takeReplay(k, raw.Sequence, raw.Data)
	if r.Number != number {
		return r, fmt.Errorf("%w: replay %d of consumer %d", domain.ErrNotFound, number, consumer)
	}
	return r, err
}

// Replay implements domain.Replays.
func (s *replays) Replay(consumer uint32, number uint64) (domain.Replay, bool) {
	s.reg.mu.RLock()
	defer s.reg.mu.RUnlock()
	r := s.reg.replays.of[consumer][replayKey(consumer, number)]
	return r, r.Number == number
}

// LastReplay implements domain.Replays.
func (s *replays) LastReplay(consumer uint32) domain.Replay { return s.reg.lastReplay(consumer) }

func (r *registry) lastReplay(consumer uint32) (last domain.Replay) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, one := range r.replays.of[consumer] {
		if one.Number > last.Number {
			last = one
		}
	}
	return last
}

// RunningReplays implements domain.Replays.
func (s *replays) RunningReplays() []domain.Replay {
	s.reg.mu.RLock()
	defer s.reg.mu.RUnlock()
	return slices.Collect(maps.Values(s.reg.replays.running))
}

// deleteReplays removes those of a consumer that is gone from the bucket. The node that runs one finds that out when it saves it.
func (s *base) deleteReplays(ctx context.Context, consumer uint32) error {
	bucket := s.cfg.registry()
	stream, err := s.js.Stream(ctx, "KV_"+bucket)
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+bucket+"."+replayPrefix+strconv.FormatUint(uint64(consumer), 10)+".*"))
}

// LastRecord implements domain.Replays. It waits for the disk: a sequence that a power failure takes back is given away again.
// And it waits, once for all pages of a replay, until the records up to there and their messages are known here: a replay that was
// decided on less would leave jobs out, and nobody would know.
func (s *replays) LastRecord(ctx context.Context) (uint64, error) {
	read, cancel := context.WithTimeout(ctx, streams.CommitTimeout)
	defer cancel()
	last, err := s.readUpToNow(read, s.jobStream, s.jobsSeen)
	if err == nil { // a record is stored after its message
		_, err = s.readUpToNow(read, s.messageStream, s.messagesSeen)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: this node has not read all messages and jobs that are stored: %w", domain.ErrUnavailable, err)
	}
	return last, s.jobWrites.DurableAt(ctx, last)
}

// Settled implements domain.Replays.
func (s *replays) Settled(r domain.Replay, from uint64, limit int) (jobs []domain.Job, next uint64) {
	for next = from; next > 0 && len(jobs) < limit; {
		jobs, next = s.index.SettledFrom(r, next, jobs, limit)
	}
	return jobs, next
}
