package domain

import (
	"log/slog"
	"strconv"
)

// JobStatus is the state of a job. The numbers are part of the HTTP contract.
type JobStatus int

// The states of a job.
const (
	Queued    JobStatus = 1001
	Inflight  JobStatus = 1002
	Delivered JobStatus = 1003
	Dead      JobStatus = 1004
	// Removed is the state of a job that was purged from the dead letters. It
	// is never shown: no list, count or lookup finds such a job.
	Removed JobStatus = 1005
)

// JobStatuses lists the states that can be seen, in the order of a job's life.
var JobStatuses = [...]JobStatus{Queued, Inflight, Delivered, Dead}

var jobStatusNames = map[JobStatus]string{
	Queued: "QUEUED", Inflight: "INFLIGHT", Delivered: "DELIVERED", Dead: "DEAD", Removed: "REMOVED",
}

// String returns the name of the state as the HTTP contract spells it.
func (s JobStatus) String() string {
	if name, ok := jobStatusNames[s]; ok {
		return name
	}
	return strconv.Itoa(int(s))
}

// LogValue has a log name a state as the HTTP interface does.
func (s JobStatus) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Settled tells whether nothing happens to a job in this state by itself.
func (s JobStatus) Settled() bool { return s >= Delivered }

// ParseJobStatus returns the state that the HTTP contract calls name.
func ParseJobStatus(name string) (JobStatus, bool) {
	for _, s := range JobStatuses {
		if jobStatusNames[s] == name {
			return s, true
		}
	}
	return 0, false
}

// MessageStatus is the state of a broadcast message.
type MessageStatus int

// The states of a message. A message is dispatched as soon as it is stored,
// because storing it is what gives every consumer its job. Acknowledged is
// kept for clients that filter by it; no message is ever in it.
const (
	Acknowledged MessageStatus = 101
	Dispatched   MessageStatus = 102
)

// String returns the name of the state as the HTTP contract spells it.
func (s MessageStatus) String() string {
	switch s {
	case Acknowledged:
		return "ACKNOWLEDGED"
	case Dispatched:
		return "DISPATCHED"
	}
	return strconv.Itoa(int(s))
}

// ScheduledStatus is the state of a scheduled message.
type ScheduledStatus int

// The states of a scheduled message.
const (
	ScheduledPending    ScheduledStatus = 101
	ScheduledDispatched ScheduledStatus = 102
)

// String returns the name of the state as the HTTP contract spells it.
func (s ScheduledStatus) String() string {
	switch s {
	case ScheduledPending:
		return "SCHEDULED"
	case ScheduledDispatched:
		return "DISPATCHED"
	}
	return strconv.Itoa(int(s))
}
