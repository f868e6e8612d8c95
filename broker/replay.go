package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ReplayState tells what becomes of a replay.
type ReplayState string

// The states of a replay.
const (
	ReplayRunning   ReplayState = "RUNNING"
	ReplayDone      ReplayState = "DONE"
	ReplayCancelled ReplayState = "CANCELLED"
)

// ReplaySpec says which jobs of a consumer are queued again. What is zero does not restrict them.
type ReplaySpec struct {
	// Since and Until bound when a message was received; Until is not part of the time.
	Since, Until time.Time
	// Status is Dead or Delivered; 0 means both.
	Status JobStatus `json:",omitempty"`
	// Metadata are headers that a message has.
	Metadata map[string]string `json:",omitempty"`
	// Rate is how many jobs are queued in a second, at most; at least 1, so that a replay is saved every second or so.
	Rate float64
}

// Replay is one that was asked for. It ends with the jobs that were settled then: a job that it has queued is not queued by
// it again, however often it is settled, and by however many nodes it is run. That is decided by the revisions of records.
type Replay struct {
	ID       string
	Channel  string
	Consumer uint32
	Spec     ReplaySpec
	State    ReplayState
	// UpTo is the last record there was when it was asked for.
	UpTo uint64
	// Count is how many jobs it was for then. Replayed were queued again; Skipped were no longer what was asked for when
	// their turn came.
	Count, Replayed, Skipped int
	// Next is the sequence at which it goes on.
	Next uint64
	// Owner is the process that runs it, and saves that it does so every now and then.
	Owner     string
	CreatedAt time.Time
	ChangedAt time.Time
	// Revision is the store's, 0 for one not stored yet.
	Revision uint64 `json:"-"`
}

// Replays keeps replays and finds the jobs for them.
type Replays interface {
	// SaveReplay makes or changes a replay, on disk; ErrConflict if it was changed meanwhile.
	SaveReplay(ctx context.Context, r Replay) (Replay, error)
	// DeleteReplay removes one.
	DeleteReplay(ctx context.Context, r Replay) error
	// RefreshReplay reads one as it is stored.
	RefreshReplay(ctx context.Context, consumer uint32, id string) (Replay, error)
	// Replays lists those that are known here, of one consumer or with 0 of all, the oldest first.
	Replays(consumer uint32) []Replay
	// LastRecord is the revision of the last record of any job.
	LastRecord(ctx context.Context) (uint64, error)
	// Settled returns up to limit jobs of a consumer, by sequence from one on, that are as a replay wants them but for their
	// metadata, and where to go on; 0: there are no more.
	Settled(ctx context.Context, r Replay, from uint64, limit int) (jobs []Job, next uint64)
}

// ErrReplayRunning says that a consumer has a replay already.
var ErrReplayRunning = errors.New("a replay of this consumer is running: wait for its end or cancel it")

// keptReplays is how many replays of a consumer that have ended can be looked at.
const keptReplays = 20

// replayPage is how many jobs are looked at at a time, at most.
const replayPage = 100

// Takes tells whether the replay is for jobs in a state.
func (s ReplaySpec) Takes(status JobStatus) bool {
	return status == s.Status || s.Status == 0 && (status == Dead || status == Delivered)
}

// TakesTime tells whether the replay is for messages that were received at a time.
func (s ReplaySpec) TakesTime(at time.Time) bool {
	return !at.Before(s.Since) && (s.Until.IsZero() || at.Before(s.Until))
}

func (s ReplaySpec) takesMessage(m Message) bool {
	has := make(map[string]string, len(m.Headers))
	for name, value := range m.Headers {
		has[canonical(strings.ToLower(name))] = value
	}
	for name, value := range s.Metadata {
		if got, ok := has[canonical(strings.ToLower(name))]; !ok || got != value {
			return false
		}
	}
	return true
}

// newReplay is a replay as it is asked for now.
func (b *Broker) newReplay(ctx context.Context, c Consumer, spec ReplaySpec) (Replay, error) {
	upTo, err := b.store.LastRecord(ctx)
	now := time.Now().UTC()
	return Replay{
		ID: NewID(), Channel: c.Channel, Consumer: c.Number, Spec: spec, State: ReplayRunning, UpTo: upTo, Next: 1,
		Owner: b.id, CreatedAt: now, ChangedAt: now,
	}, err
}

// CountReplay tells how many jobs a replay would be for.
func (b *Broker) CountReplay(ctx context.Context, c Consumer, spec ReplaySpec) (int, error) {
	r, err := b.newReplay(ctx, c, spec)
	if err != nil {
		return 0, err
	}
	return b.countReplay(ctx, r)
}

func (b *Broker) countReplay(ctx context.Context, r Replay) (count int, err error) {
	for from := r.Next; from > 0 && err == nil; {
		var jobs []Job
		jobs, from, err = b.replayable(ctx, r, from, replayPage)
		count += len(jobs)
	}
	return count, err
}

// replayable is a page of the jobs that a replay is for.
func (b *Broker) replayable(ctx context.Context, r Replay, from uint64, limit int) (jobs []Job, next uint64, err error) {
	if ctx.Err() != nil {
		return nil, from, context.Cause(ctx)
	}
	jobs, next = b.store.Settled(ctx, r, from, limit)
	if len(r.Spec.Metadata) == 0 || len(jobs) == 0 {
		return jobs, next, nil
	}
	work, err := b.withMessages(ctx, jobs)
	if err != nil {
		return nil, from, err
	}
	jobs = jobs[:0]
	for _, w := range work {
		if r.Spec.takesMessage(w.Message) {
			jobs = append(jobs, w.Job)
		}
	}
	return jobs, next, nil
}

// StartReplay begins to queue jobs again, and forgets replays of the consumer that have ended long ago.
func (b *Broker) StartReplay(ctx context.Context, c Consumer, spec ReplaySpec) (Replay, error) {
	r, err := b.newReplay(ctx, c, spec)
	if err != nil {
		return r, err
	}
	before := b.store.Replays(c.Number)
	if slices.ContainsFunc(before, func(r Replay) bool { return r.State == ReplayRunning }) {
		return r, ErrReplayRunning
	}
	for _, old := range before[:max(0, len(before)-keptReplays+1)] {
		if err := b.store.DeleteReplay(ctx, old); err != nil && !errors.Is(err, ErrConflict) {
			return r, err
		}
	}
	if r.Count, err = b.countReplay(ctx, r); err != nil {
		return r, err
	}
	if r, err = b.store.SaveReplay(ctx, r); err != nil {
		return r, err
	}
	b.runReplay(r)
	return r, nil
}

// ReplayOf returns a replay as it is stored.
func (b *Broker) ReplayOf(ctx context.Context, c Consumer, id string) (Replay, error) {
	return b.store.RefreshReplay(ctx, c.Number, id)
}

// CancelReplay ends a replay. One that has ended stays as it is.
func (b *Broker) CancelReplay(ctx context.Context, c Consumer, id string) error {
	for range maxTries {
		r, err := b.store.RefreshReplay(ctx, c.Number, id)
		if err != nil || r.State != ReplayRunning {
			return err
		}
		r.State, r.ChangedAt = ReplayCancelled, time.Now().UTC()
		if _, err = b.store.SaveReplay(ctx, r); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%w: replay %s changed %d times in a row", ErrConflict, id, maxTries)
}
