package jsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker"
)

// Replays are in the registry's bucket, which every node follows.

const replayPrefix = "r."

func replayKey(consumer uint32, id string) string {
	return replayPrefix + strconv.FormatUint(uint64(consumer), 10) + "." + encodeToken(id)
}

// takeReplay takes what the bucket holds for a key. r.mu is not held.
func (r *registry) takeReplay(k string, revision uint64, value []byte) error {
	var replay broker.Replay
	if value != nil {
		if err := json.Unmarshal(value, &replay); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[k] >= revision {
		return nil
	}
	r.seen[k] = revision
	delete(r.replays, k)
	if value != nil {
		replay.Revision = revision
		r.replays[k] = replay
	}
	return nil
}

// SaveReplay implements broker.Replays.
func (s *Store) SaveReplay(ctx context.Context, r broker.Replay) (broker.Replay, error) {
	if err := s.registryWrites.failure(); err != nil {
		return r, err
	}
	value, err := json.Marshal(r)
	if err != nil {
		return r, fmt.Errorf("encode replay %s: %w", r.ID, err)
	}
	k := replayKey(r.Consumer, r.ID)
	if r.Revision, err = s.reg.write(ctx, k, value, r.Revision); err != nil {
		return r, err
	}
	return r, errors.Join(s.reg.takeReplay(k, r.Revision, value), s.registryWrites.durableAt(ctx, r.Revision))
}

// DeleteReplay implements broker.Replays.
func (s *Store) DeleteReplay(ctx context.Context, r broker.Replay) error {
	k := replayKey(r.Consumer, r.ID)
	if err := s.reg.kv.Delete(ctx, k, jetstream.LastRevision(r.Revision)); err != nil {
		return registryError(k, err)
	}
	return s.reg.takeReplay(k, r.Revision+1, nil)
}

// RefreshReplay implements broker.Replays.
func (s *Store) RefreshReplay(ctx context.Context, consumer uint32, id string) (broker.Replay, error) {
	bucket, k := s.cfg.registry(), replayKey(consumer, id)
	raw, err := s.askLeader(ctx, "KV_"+bucket, "$KV."+bucket+"."+k)
	var r broker.Replay
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), err == nil && raw.Header.Get("KV-Operation") != "":
		return r, fmt.Errorf("%w: replay %q", broker.ErrNotFound, id)
	case err != nil:
		return r, fmt.Errorf("%w: registry key %s: %w", broker.ErrUnavailable, k, err)
	}
	if err := json.Unmarshal(raw.Data, &r); err != nil {
		return r, fmt.Errorf("replay %q: %w", id, err)
	}
	r.Revision = raw.Sequence
	return r, s.reg.takeReplay(k, raw.Sequence, raw.Data)
}

// Replays implements broker.Replays.
func (s *Store) Replays(consumer uint32) (replays []broker.Replay) {
	s.reg.mu.RLock()
	for _, r := range s.reg.replays {
		if consumer == 0 || r.Consumer == consumer {
			replays = append(replays, r)
		}
	}
	s.reg.mu.RUnlock()
	slices.SortFunc(replays, func(a, b broker.Replay) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return replays
}

// LastRecord implements broker.Replays. It waits for the disk: a sequence that a power failure takes back is given away again.
func (s *Store) LastRecord(ctx context.Context) (uint64, error) {
	state, err := s.askState(ctx, s.jobStream)
	if err != nil {
		return 0, err
	}
	return state.LastSeq, s.jobWrites.durableAt(ctx, state.LastSeq)
}

// Settled implements broker.Replays.
func (s *Store) Settled(ctx context.Context, r broker.Replay, from uint64, limit int) (jobs []broker.Job, next uint64) {
	wait, cancel := context.WithTimeout(ctx, newsWait)
	defer cancel()
	// An error means that there is no such record any more, or not soon.
	_ = s.jobsSeen.wait(wait, r.UpTo)
	for next = from; next > 0 && len(jobs) < limit; {
		jobs, next = s.index.settledFrom(r, next, jobs, limit)
	}
	return jobs, next
}

// settledFrom looks at some of the settled jobs of a consumer, adds those that a replay is for, and tells where to go on.
func (x *index) settledFrom(r broker.Replay, from uint64, jobs []broker.Job, limit int) (_ []broker.Job, next uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[r.Consumer]
	if k == nil {
		return jobs, 0
	}
	before, looked := settle(broker.Job{ID: broker.JobID{Seq: from - 1}, Status: broker.Delivered}), 0
	k.settled.bySeq.ascend(&before, func(e settledJob) bool {
		if looked++; looked > finishedPage || len(jobs) == limit {
			next = e.seq()
			return false
		}
		m, kept := k.channel.find(e.seq())
		if kept && e.revision() <= r.UpTo && r.Spec.Takes(e.status()) && r.Spec.TakesTime(time.Unix(0, m.at)) {
			jobs = append(jobs, e.job(r.Consumer))
		}
		return true
	})
	return jobs, next
}
