package domain

import "time"

// The kinds of bulk operations on one consumer's jobs.
const (
	ReplayKind      = "replay"
	PurgeQueuedKind = "purge-queued"
)

// OfConsumer reports whether kind is an operation on one consumer's jobs.
func OfConsumer(kind string) bool { return kind == ReplayKind || kind == PurgeQueuedKind }

// QueuedPurge selects the queued jobs of a consumer to remove: those of messages up to a sequence.
type QueuedPurge struct{ UpTo uint64 }

// ReplaySpec selects the jobs of a consumer to queue again. Zero fields do not restrict the selection.
type ReplaySpec struct {
	// Since and Until bound the time of receipt of a message. Until is exclusive.
	Since, Until time.Time
	// Status is Dead or Delivered. 0 means both.
	Status JobStatus `json:",omitempty"`
	// Metadata are headers that a message must have.
	Metadata map[string]string `json:",omitempty"`
	// Message is the ID of a single message to replay. Empty means any.
	Message string `json:",omitempty"`
	// Rate is the number of jobs to queue per second, at least 1.
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

// The kinds of bulk operations on dead jobs, of all consumers.
const (
	RequeueKind = "requeue"
	PurgeKind   = "purge"
)

// The reasons why a job is dead.
const (
	Refused  = "REFUSED"   // the answer to the last callback was not 2xx
	NoAnswer = "NO_ANSWER" // the last callback got no answer
	GivenUp  = "GIVEN_UP"  // a worker of a pull consumer gave up, or did not complete the job within any claim
)

// DeadReasons lists all reasons.
var DeadReasons = []string{Refused, NoAnswer, GivenUp}

// DeadFilter selects dead jobs, of all consumers. Empty fields do not restrict the selection.
type DeadFilter struct {
	// Consumer is the ID of a consumer of any channel, or CHANNEL/CONSUMER.
	Consumer                  string `json:",omitempty"`
	Producer, Message, Reason string `json:",omitempty"`
	// Since and Until bound the time at which a job became dead. Until is exclusive.
	Since, Until time.Time `json:",omitzero"`
}

// TakesConsumer reports whether the filter selects jobs of a consumer.
func (f DeadFilter) TakesConsumer(c Consumer) bool {
	return f.Consumer == "" || f.Consumer == c.ID || f.Consumer == c.Channel+"/"+c.ID
}

// Takes reports whether the filter selects a dead job of a consumer and a message.
func (f DeadFilter) Takes(j Job, c Consumer, m Message) bool {
	return (f.Producer == "" || f.Producer == m.Producer) && (f.Message == "" || f.Message == m.ID) && (f.Reason == "" || f.Reason == DeadReason(j, c))
}

// DeadReason returns why a consumer's job is dead.
func DeadReason(j Job, c Consumer) string {
	switch {
	case c.Type == Pull:
		return GivenUp
	case j.Code == 0:
		return NoAnswer
	}
	return Refused
}
