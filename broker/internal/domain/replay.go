package domain

import (
	"context"
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

// Takes tells whether the replay is for jobs in a state.
func (s ReplaySpec) Takes(status JobStatus) bool {
	return status == s.Status || s.Status == 0 && (status == Dead || status == Delivered)
}

// TakesTime tells whether the replay is for messages that were received at a time.
func (s ReplaySpec) TakesTime(at time.Time) bool {
	return !at.Before(s.Since) && (s.Until.IsZero() || at.Before(s.Until))
}
