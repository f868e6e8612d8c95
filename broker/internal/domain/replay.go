package domain

import "time"

// ReplayKind is the kind of bulk operation that a replay is.
const ReplayKind = "replay"

// ReplaySpec says which jobs of a consumer are queued again. What is zero does not restrict them.
type ReplaySpec struct {
	// Since and Until bound when a message was received; Until is not part of the time.
	Since, Until time.Time
	// Status is Dead or Delivered; 0 means both.
	Status JobStatus `json:",omitempty"`
	// Metadata are headers that a message has.
	Metadata map[string]string `json:",omitempty"`
	// Message is the ID of the only message that it is for; empty: of any.
	Message string `json:",omitempty"`
	// Rate is how many jobs are queued in a second, at most; at least 1.
	Rate float64
}

// Replay selects the jobs of a consumer that were settled as they are now at its record UpTo. So a job that it has queued is not
// queued by it again, however often it is settled, and by however many nodes it is run.
type Replay struct {
	Consumer uint32
	Spec     ReplaySpec
	UpTo     uint64
}

// Takes tells whether the replay is for jobs in a state.
func (s ReplaySpec) Takes(status JobStatus) bool {
	return status == s.Status || s.Status == 0 && (status == Dead || status == Delivered)
}

// TakesTime tells whether the replay is for messages that were received at a time.
func (s ReplaySpec) TakesTime(at time.Time) bool {
	return !at.Before(s.Since) && (s.Until.IsZero() || at.Before(s.Until))
}
