package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
)

const (
	// replayPrefix is the prefix of the keys of replays in the registry's bucket. The keys are grouped by consumer.
	replayPrefix = "r."
	// maxReplays is the number of replays that are retained for a consumer.
	maxReplays = 20
)

func replayGroup(consumer uint32) string { return strconv.FormatUint(uint64(consumer), 10) }

// earlierReplay decodes the record of a replay in its older form, before replays became bulk operations. The fields that it does not convert have the
// same names.
func earlierReplay(e registry.Entry) (o bulk.Operation, err error) {
	var r struct {
		Consumer        uint32
		Count, Replayed int
	}
	var spec domain.ReplaySpec
	if err = errors.Join(json.Unmarshal(e.Value, &o), json.Unmarshal(e.Value, &r)); err == nil {
		err = json.Unmarshal(o.Spec, &spec)
	}
	o.Group = replayGroup(r.Consumer)
	o.ID, o.Kind, o.Rate = bulk.ID(o.Group, o.Number), domain.ReplayKind, spec.Rate
	o.Matched, o.Done = r.Count, r.Replayed
	return o, err
}

// replays stores replays and finds their jobs.
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

// LastRecord waits until the last record is on disk, because a sequence that a power failure loses is assigned again. It also waits, once per replay,
// until the index has the records up to there and their messages. Otherwise the replay would silently leave jobs out.
func (s *replays) LastRecord(ctx context.Context) (uint64, error) {
	last, err := s.upToNow(ctx)
	if err != nil {
		return 0, err
	}
	return last, s.jobWrites.DurableAt(ctx, last)
}

// upToNow waits until this node has read all stored messages and records. It returns the revision of the last record.
func (s *base) upToNow(ctx context.Context) (last uint64, err error) {
	read, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	records, messages := s.jobFeed, s.messageFeed
	last, err = records.UpToNow(read)
	if err == nil { // a record's message is stored before the record
		_, err = messages.UpToNow(read)
	}
	if err != nil {
		err = fmt.Errorf("%w: this node has not read all messages and jobs that are stored: %w", domain.ErrUnavailable, err)
	}
	return last, err
}
