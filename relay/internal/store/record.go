package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/systems"
	"github.com/jetpull/jetpull/internal/tokens"
	"github.com/jetpull/jetpull/relay/internal/machine"
)

// Versioned is a record with its revision.
type Versioned struct {
	machine.Record
	// Revision is the revision that a compare-and-swap expects. 0 means that the record is not stored.
	Revision uint64 `json:"revision,omitempty"`
}

// Records stores the records of messages. Each transition is a compare-and-swap.
type Records struct {
	*base
	records jetstream.Stream
	// awaiting counts requests of this process that wait for the end of a message.
	awaiting atomic.Int64
}

func (s *Records) recordSubject(source, id string) string {
	return s.kvSubject(systems.RelayRecords, tokens.Subject(source)+"."+tokens.Subject(id))
}

// Create begins to store the record of a new message. created waits until it is stored, and returns ErrConflict if a record exists.
func (s *Records) Create(r machine.Record) (created func(context.Context) (Versioned, error)) {
	return s.Swap(Versioned{Record: r}, r)
}

// Swap begins to replace was by next. swapped waits until next is stored, and returns ErrConflict if the stored record is not was. The record of a
// message that has ended is kept for a limited time.
func (s *Records) Swap(was Versioned, next machine.Record) (swapped func(context.Context) (Versioned, error)) {
	data, err := json.Marshal(next)
	if err != nil {
		err = fmt.Errorf("write the record of %q %q: %w", next.Source, next.ID, err)
		return func(context.Context) (Versioned, error) { return was, err }
	}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(was.Revision)}
	switch next.Status {
	case machine.Done:
		opts = append(opts, jetstream.WithMsgTTL(s.Tombstone))
	case machine.Failed:
		opts = append(opts, jetstream.WithMsgTTL(max(failedAge, s.Tombstone)))
	}
	published := s.beginWrite(&nats.Msg{Subject: s.recordSubject(next.Source, next.ID), Data: data}, opts...)
	return func(ctx context.Context) (Versioned, error) {
		revision, err := published(ctx)
		if err != nil {
			return was, err
		}
		return Versioned{next, revision}, nil
	}
}

// OnDisk returns when the record with a revision is on disk.
func (s *Records) OnDisk(ctx context.Context, revision uint64) error {
	return s.durable(ctx, "KV_"+s.StreamName(systems.RelayRecords), revision)
}

// Read is like Load, for a record that is shown to others: if the message has ended or has a response, Read waits until that is on disk.
func (s *Records) Read(ctx context.Context, source, id string) (Versioned, error) {
	v, err := s.Load(ctx, source, id)
	if err == nil && (v.Status.Ended() || v.Status == machine.Responded) {
		err = s.OnDisk(ctx, v.Revision)
	}
	return v, err
}

// Load reads a record. It returns ErrMalformed if the record cannot be decoded.
func (s *Records) Load(ctx context.Context, source, id string) (Versioned, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	raw, err := jsstream.Last(ctx, s.js, s.records, s.recordSubject(source, id))
	if err != nil {
		return Versioned{}, jsstream.ReadError(err, fmt.Sprintf("message %q of source %q", id, source))
	}
	v := Versioned{Revision: raw.Sequence}
	if err := cmp.Or(json.Unmarshal(raw.Data, &v.Record), check(&v.Record)); err != nil {
		return v, fmt.Errorf("%w: read the record of %q %q: %w", ErrMalformed, source, id, err)
	}
	return v, nil
}

// Listed is a record with the time of its last change.
type Listed struct {
	Versioned
	Changed time.Time
}

// List returns at most limit records that match, the last changed first, from the revision from downwards, or from the last if from is 0. It looks at
// about maxListed records. next is the revision at which to continue, or 0 if there are no more.
func (s *Records) List(ctx context.Context, from uint64, limit int, match func(Listed) bool) (found []Listed, next uint64, err error) {
	state, err := jsstream.AskState(ctx, s.records)
	if err != nil {
		return nil, 0, err
	}
	read := func(low, high uint64) ([]Listed, bool, error) { return s.between(ctx, low, high, max(limit, maxStep)) }
	visit := func(one Listed) uint64 {
		if len(found) == limit {
			return one.Revision
		}
		if one.ID != "" && match(one) {
			found = append(found, one)
		}
		return 0
	}
	next, _, err = jsstream.Back(max(1, state.FirstSeq), min(cmp.Or(from, state.LastSeq), state.LastSeq), limit, read, visit,
		func(looked int) bool { return looked >= maxListed })
	return found, next, err
}

// between returns the records with revisions from low to high. A record that cannot be decoded has no ID. cut reports that there are more than most.
func (s *Records) between(ctx context.Context, low, high uint64, most int) (all []Listed, cut bool, err error) {
	for seq := low; seq <= high && len(all) <= most; {
		m, err := jsstream.Next(ctx, s.js, s.records.CachedInfo().Config.Name, seq, ">")
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && m.Sequence > high:
			return all, false, nil
		case err != nil:
			return nil, false, jsstream.ReadError(err, "a record")
		}
		one := Listed{Versioned{Revision: m.Sequence}, m.Time}
		if json.Unmarshal(m.Data, &one.Record) != nil {
			one.ID = ""
		}
		one.Response, one.Attempts = nil, nil // they may be large, and no list shows them
		all, seq = append(all, one), m.Sequence+1
	}
	return all, len(all) > most, nil
}

const (
	// maxListed is about how many records List looks at before it returns what it has found, and maxStep how many at once.
	maxListed = 2000
	maxStep   = 500
)

// NotifyEnd wakes requests that wait for a message to have a response or to end. If the notice is lost, they wait up to waitPoll longer.
func (s *Records) NotifyEnd(r *machine.Record) {
	if s.Embedded && s.awaiting.Load() == 0 {
		// No request waits. A request that begins to wait now reads the record afterwards, and finds that the message has ended.
		return
	}
	_ = s.nc.Publish(s.endSubject(r.Source, r.ID), nil)
}

func (s *Records) endSubject(source, id string) string {
	return s.Name + ".ended." + tokens.Subject(source) + "." + tokens.Subject(id)
}

// waitPoll is how often a waiting request reads the record without a notice.
const waitPoll = time.Second

// Await returns the record when it has a response or has ended, or its present state when ctx ends. It also waits for a record that does not exist
// yet, or cannot be read for a while.
func (s *Records) Await(ctx context.Context, source, id string) (Versioned, error) {
	s.awaiting.Add(1)
	defer s.awaiting.Add(-1)
	woken := make(chan *nats.Msg, 1)
	sub, err := s.nc.ChanSubscribe(s.endSubject(source, id), woken)
	if err != nil {
		return Versioned{}, fmt.Errorf("%w: wait for %q %q: %w", ErrUnavailable, source, id, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		r, err := s.Read(context.WithoutCancel(ctx), source, id)
		passing := errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnavailable)
		if err != nil && !passing || r.Status.Ended() || r.Status == machine.Responded {
			return r, err
		}
		select {
		case <-woken:
		case <-time.After(waitPoll):
		case <-ctx.Done():
			return r, err
		}
	}
}
