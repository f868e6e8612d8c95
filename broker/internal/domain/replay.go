package domain

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// KeptReplays is how many replays of a consumer can be looked at: each takes the place of the one so many before it.
const KeptReplays = 20

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
	Channel  string
	Consumer uint32
	// Number counts the replays of the consumer, from 1. Only the last of them can be running.
	Number uint64
	Spec   ReplaySpec
	State  ReplayState
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
	// SaveReplay makes or changes a replay, on disk; ErrConflict if it was changed, or one with its number made, meanwhile.
	SaveReplay(ctx context.Context, r Replay) (Replay, error)
	// RefreshReplay reads one as it is stored, which is known here then.
	RefreshReplay(ctx context.Context, consumer uint32, number uint64) (Replay, error)
	// Replay finds one in memory, where changes of other nodes come a moment later.
	Replay(consumer uint32, number uint64) (Replay, bool)
	// LastReplay is the last one of a consumer that is known here, zero if there is none.
	LastReplay(consumer uint32) Replay
	// RunningReplays are those of all consumers that run, as far as is known here.
	RunningReplays() []Replay
	// LastRecord is the revision of the last record of any job. What was recorded up to there is known here then, and its messages
	// are; ErrUnavailable: not yet.
	LastRecord(ctx context.Context) (uint64, error)
	// Settled returns up to limit jobs of a consumer, by sequence from one on, that are as a replay wants them but for their
	// metadata, and where to go on; 0: there are no more.
	Settled(r Replay, from uint64, limit int) (jobs []Job, next uint64)
}

// ID names the replay among those of all consumers.
func (r Replay) ID() string {
	return strconv.FormatUint(uint64(r.Consumer), 10) + "-" + strconv.FormatUint(r.Number, 10)
}

// ParseReplayID reads the number of a consumer's replay from its ID.
func ParseReplayID(consumer uint32, id string) (number uint64, ok bool) {
	_, digits, _ := strings.Cut(id, "-")
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil && number > 0 && id == Replay{Consumer: consumer, Number: number}.ID()
}

// Takes tells whether the replay is for jobs in a state.
func (s ReplaySpec) Takes(status JobStatus) bool {
	return status == s.Status || s.Status == 0 && (status == Dead || status == Delivered)
}

// TakesTime tells whether the replay is for messages that were received at a time.
func (s ReplaySpec) TakesTime(at time.Time) bool {
	return !at.Before(s.Since) && (s.Until.IsZero() || at.Before(s.Until))
}
