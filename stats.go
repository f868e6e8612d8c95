package jetpull

import (
	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/worker"
)

// Stats are counters of a Subscription since Subscribe, and gauges of its
// present state. Reading them is cheap: no request is sent.
type Stats struct {
	// Pulls counts pull requests sent. Messages and Bytes count what they delivered.
	Pulls, Messages, Bytes uint64
	// Acks, Naks, Terms and InProgress count acknowledgements sent, those of HandedBack included.
	Acks, Naks, Terms, InProgress uint64
	// HandedBack counts messages that the client NAKed without delay: messages that arrived after their caller had returned, and when a call
	// ended, messages that were not started or whose handlers were cancelled. Dropped counts messages lost with ack policy none: see
	// [Subscription.Close].
	HandedBack, Dropped uint64
	// Redelivered counts redeliveries that Messages and Consume received.
	Redelivered uint64
	// Silent counts pulls that the server did not answer, or stopped answering.
	Silent uint64
	Attempts
	// Reconnects counts reconnects of the connection.
	Reconnects uint64
	// Statuses counts status frames by code.
	Statuses map[int]uint64

	// Outstanding is the number of messages that open pulls may still bring.
	Outstanding int
	// Buffered and Running count the messages that wait in Messages and Consume, and those being handled.
	// Window is how many messages they may hold or have on order.
	Buffered, Running, Window int
	// Pin is the pin id held in the Subscription's group, or empty.
	Pin string
}

// Attempts counts failed attempts of Consume's handlers that make an [Event]. Failed counts all, TimedOut those that had run for
// [HandlerTimeout], and Expired those that [ExpiresAt] ended. The other fields count attempts by outcome: see [EventOutcome].
type Attempts struct {
	Failed, TimedOut, Expired, Retried, DeadLettered, Terminated uint64
}

// Stats returns the Subscription's counters.
func (s *Subscription) Stats() Stats {
	if s.driver == nil {
		return Stats{}
	}
	var ps pull.Stats
	var outstanding int
	s.driver.Do(func(e *pull.Engine, _ pull.At) { ps, outstanding = e.Stats() })
	pin, _ := s.Pin()
	c := &s.counts
	c.mu.Lock()
	attempts := c.attempts
	c.mu.Unlock()
	st := Stats{
		Pulls: ps.Pulls, Messages: ps.Messages, Bytes: ps.Bytes,
		Acks: c.settled[worker.Acked].Load(), Naks: c.settled[worker.Naked].Load(), Terms: c.settled[worker.Terminated].Load(),
		InProgress: c.inProgress.Load(), HandedBack: ps.HandedBack, Dropped: ps.Dropped, Redelivered: c.redelivered.Load(), Silent: ps.Silent,
		Attempts: attempts, Reconnects: s.nc.Stats().Reconnects - s.reconnects, Statuses: ps.Statuses,
		Outstanding: outstanding, Pin: pin,
	}
	if s.session.Load().ackNone {
		st.Dropped += s.Missed()
	}
	for _, r := range s.openRuns() {
		waiting, running, window := r.pool.Size()
		st.Buffered += waiting
		st.Running += running
		st.Window += window
	}
	return st
}
