package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
)

const (
	// replayPrefix begins the keys of replays, which are in the registry's bucket, grouped by consumer.
	replayPrefix = "r."
	// keptReplays is how many replays of a consumer can be looked at.
	keptReplays = 20
)

func replayGroup(consumer uint32) string { return strconv.FormatUint(uint64(consumer), 10) }

// earlierReplay reads the record of a replay as it was before replays were bulk operations.
func earlierReplay(e registry.Entry) (bulk.Operation, error) {
	var r struct {
		Consumer                 uint32
		Number, UpTo, Next       uint64
		Spec                     json.RawMessage
		State                    bulk.State
		Count, Replayed, Skipped int
		Owner                    string
		CreatedAt, ChangedAt     time.Time
	}
	var spec domain.ReplaySpec
	err := json.Unmarshal(e.Value, &r)
	if err == nil {
		err = json.Unmarshal(r.Spec, &spec)
	}
	group := replayGroup(r.Consumer)
	return bulk.Operation{
		ID: bulk.ID(group, r.Number), Kind: domain.ReplayKind, Group: group, Number: r.Number, Spec: r.Spec, Rate: spec.Rate,
		State: r.State, UpTo: r.UpTo, Next: r.Next, Matched: r.Count, Done: r.Replayed, Skipped: r.Skipped,
		Owner: r.Owner, CreatedAt: r.CreatedAt, ChangedAt: r.ChangedAt,
	}, err
}

// replays keeps replays and finds the jobs for them.
type replays struct {
	*base
	*bulk.Table
}

// Put implements [bulk.Records]. When it returns, the record is on disk.
func (s *replays) Put(ctx context.Context, o bulk.Operation) (bulk.Operation, error) {
	if err := s.registryWrites.Failure(); err != nil {
		return o, err
	}
	o, err := s.Table.Put(ctx, o)
	if err != nil {
		return o, err
	}
	return o, s.registryWrites.DurableAt(ctx, o.Revision)
}

// All implements [bulk.Records]. It leaves out those of consumers that were deleted a moment ago.
func (s *replays) All() []bulk.Operation {
	return slices.DeleteFunc(s.Table.All(), func(o bulk.Operation) bool {
		number, err := strconv.ParseUint(o.Group, 10, 32)
		_, known := s.Directory.ConsumerByNumber(uint32(number))
		return err != nil || !known
	})
}

// LastRecord waits for the disk: a sequence that a power failure takes back is given away again. And it waits, once for all pages of a
// replay, until the records up to there and their messages are known here: a replay that was decided on less would leave jobs out, and
// nobody would know.
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

// Settled looks at a part of the index at a time, so that others get their turn.
func (s *replays) Settled(r domain.Replay, from uint64, limit int) (jobs []domain.Job, next uint64) {
	for next = from; next > 0 && len(jobs) < limit; {
		jobs, next = s.SettledFrom(r, next, jobs, limit)
	}
	return jobs, next
}
