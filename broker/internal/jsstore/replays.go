package jsstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
)

// Replays are in the registry's bucket, which every node follows.

const replayPrefix = "r."

// replayKind is that of replays, grouped by consumer.
var replayKind = registry.Kind[domain.Replay]{
	Prefix: replayPrefix,
	Key:    func(id registry.ID) string { return id.Group + "." + id.Name },
	Encode: func(r domain.Replay) any { return r },
	Decode: func(e registry.Entry) (registry.ID, domain.Replay, error) {
		var r domain.Replay
		err := json.Unmarshal(e.Value, &r)
		r.Revision = e.Revision
		return replayPlace(r.Consumer, r.Number), r, err
	},
}

func replayGroup(consumer uint32) string { return strconv.FormatUint(uint64(consumer), 10) }

// replayPlace is the place of a replay, in which it follows an older one of its consumer.
func replayPlace(consumer uint32, number uint64) registry.ID {
	return registry.ID{Group: replayGroup(consumer), Name: strconv.FormatUint(number%domain.KeptReplays, 10)}
}

// replays keeps replays and finds the jobs for them.
type replays struct{ *base }

// SaveReplay implements domain.Replays.
func (s *replays) SaveReplay(ctx context.Context, r domain.Replay) (domain.Replay, error) {
	if err := s.registryWrites.Failure(); err != nil {
		return r, err
	}
	id, revision := replayPlace(r.Consumer, r.Number), r.Revision
	if revision == 0 {
		older, _ := s.reg.replays.Cached(id)
		if older.Number >= r.Number {
			return r, fmt.Errorf("%w: replay %s", domain.ErrConflict, r.ID())
		}
		revision = older.Revision
	}
	revision, err := s.reg.replays.Put(ctx, id, r, revision)
	if err != nil {
		return r, err
	}
	r.Revision = revision
	return r, s.registryWrites.DurableAt(ctx, revision)
}

// RefreshReplay implements domain.Replays.
func (s *replays) RefreshReplay(ctx context.Context, consumer uint32, number uint64) (domain.Replay, error) {
	r, err := s.reg.replays.Fresh(ctx, replayPlace(consumer, number))
	if err == nil && r.Number != number {
		err = domain.ErrNotFound
	}
	if err != nil {
		return r, fmt.Errorf("replay %d of consumer %d: %w", number, consumer, err)
	}
	return r, nil
}

// Replay implements domain.Replays.
func (s *replays) Replay(consumer uint32, number uint64) (domain.Replay, bool) {
	r, ok := s.reg.replays.Cached(replayPlace(consumer, number))
	return r, ok && r.Number == number
}

// LastReplay implements domain.Replays.
func (s *replays) LastReplay(consumer uint32) (last domain.Replay) {
	for _, one := range s.reg.replays.In(replayGroup(consumer)) {
		if one.Number > last.Number {
			last = one
		}
	}
	return last
}

// RunningReplays implements domain.Replays.
func (s *replays) RunningReplays() []domain.Replay {
	return slices.DeleteFunc(s.reg.replays.All(), func(r domain.Replay) bool { return r.State != domain.ReplayRunning })
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
	read, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	records, messages := s.feed(s.jobStream, s.jobsSeen), s.feed(s.messageStream, s.messagesSeen)
	last, err := records.UpToNow(read)
	if err == nil { // a record is stored after its message
		_, err = messages.UpToNow(read)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: this node has not read all messages and jobs that are stored: %w", domain.ErrUnavailable, err)
	}
	return last, s.jobWrites.DurableAt(ctx, last)
}

// Settled implements domain.Replays.
func (s *replays) Settled(r domain.Replay, from uint64, limit int) (jobs []domain.Job, next uint64) {
	for next = from; next > 0 && len(jobs) < limit; {
		jobs, next = s.Index.SettledFrom(r, next, jobs, limit)
	}
	return jobs, next
}
