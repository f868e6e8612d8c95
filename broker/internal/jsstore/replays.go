package jsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

// Replays are in the registry's bucket, which every node follows.

const replayPrefix = "r."

func replayKey(consumer uint32, id string) string {
	return replayPrefix + strconv.FormatUint(uint64(consumer), 10) + "." + streams.EncodeToken(id)
}

// takeReplay takes what the bucket holds for a key. r.mu is not held.
func (r *registry) takeReplay(k string, revision uint64, value []byte) error {
	var replay domain.Replay
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

// replays keeps replays and finds the jobs for them.
type replays struct{ *base }

// SaveReplay implements domain.Replays.
func (s *replays) SaveReplay(ctx context.Context, r domain.Replay) (domain.Replay, error) {
	if err := s.registryWrites.Failure(); err != nil {
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
	return r, errors.Join(s.reg.takeReplay(k, r.Revision, value), s.registryWrites.DurableAt(ctx, r.Revision))
}

// DeleteReplay implements domain.Replays.
func (s *replays) DeleteReplay(ctx context.Context, r domain.Replay) error {
	k := replayKey(r.Consumer, r.ID)
	if err := s.reg.kv.Delete(ctx, k, jetstream.LastRevision(r.Revision)); err != nil {
		return registryError(k, err)
	}
	return s.reg.takeReplay(k, r.Revision+1, nil)
}

// RefreshReplay implements domain.Replays.
func (s *replays) RefreshReplay(ctx context.Context, consumer uint32, id string) (domain.Replay, error) {
	bucket, k := s.cfg.registry(), replayKey(consumer, id)
	raw, err := s.AskLeader(ctx, "KV_"+bucket, "$KV."+bucket+"."+k)
	var r domain.Replay
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), err == nil && raw.Header.Get("KV-Operation") != "":
		return r, fmt.Errorf("%w: replay %q", domain.ErrNotFound, id)
	case err != nil:
		return r, fmt.Errorf("%w: registry key %s: %w", domain.ErrUnavailable, k, err)
	}
	if err := json.Unmarshal(raw.Data, &r); err != nil {
		return r, fmt.Errorf("replay %q: %w", id, err)
	}
	r.Revision = raw.Sequence
	return r, s.reg.takeReplay(k, raw.Sequence, raw.Data)
}

// Replays implements domain.Replays.
func (s *replays) Replays(consumer uint32) (replays []domain.Replay) {
	s.reg.mu.RLock()
	for _, r := range s.reg.replays {
		if consumer == 0 || r.Consumer == consumer {
			replays = append(replays, r)
		}
	}
	s.reg.mu.RUnlock()
	slices.SortFunc(replays, func(a, b domain.Replay) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return replays
}

// LastRecord implements domain.Replays. It waits for the disk: a sequence that a power failure takes back is given away again.
func (s *replays) LastRecord(ctx context.Context) (uint64, error) {
	state, err := streams.AskState(ctx, s.jobStream)
	if err != nil {
		return 0, err
	}
	return state.LastSeq, s.jobWrites.DurableAt(ctx, state.LastSeq)
}

// Settled implements domain.Replays.
func (s *replays) Settled(ctx context.Context, r domain.Replay, from uint64, limit int) (jobs []domain.Job, next uint64) {
	wait, cancel := context.WithTimeout(ctx, newsWait)
	defer cancel()
	// An error means that there is no such record any more, or not soon.
	_ = s.jobsSeen.Wait(wait, r.UpTo)
	for next = from; next > 0 && len(jobs) < limit; {
		jobs, next = s.index.SettledFrom(r, next, jobs, limit)
	}
	return jobs, next
}
