package domain

import "time"

// The kinds of bulk operations on the jobs of one consumer.
const (
	ReplayKind      = "replay"
	PurgeQueuedKind = "purge-queued"
)

// OfConsumer reports whether a kind of operation is on the jobs of one consumer.
func OfConsumer(kind string) bool { return kind == ReplayKind || kind == PurgeQueuedKind }

// QueuedPurge selects the queued jobs of a consumer that are removed: those of messages up to a sequence.
type QueuedPurge struct{ UpTo uint64 }

// ReplaySpec selects the jobs of a consumer that are queued again. Zero fields do not restrict the selection.
type ReplaySpec struct {
	// Since and Until bound the time of receipt of a message. Until is exclusive.
	Since, Until time.Time
	// Status is Dead or Delivered; 0 means both.
	Status JobStatus `json:",omitempty"`
	// Metadata are headers that a message must have.
	Metadata map[string]string `json:",omitempty"`
	// Message is the ID of a single message to replay. Empty means any.
	Message string `json:",omitempty"`
	// Rate is how many jobs are queued per second, at least 1.
	Rate float64
}

// Takes reports whether the replay selects jobs in a state.
func (s ReplaySpec) Takes(status JobStatus) bool {
	return status == s.Status || s.Status == 0 && (status == Dead || status == Delivered)
}

// TakesTime reports whether the replay selects messages received at a time.
func (s ReplaySpec) TakesTime(at time.Time) bool {
	return !at.Before(s.Since) && (s.Until.IsZero() || at.Before(s.Until))
}
