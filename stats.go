package jetpull

// Stats are counters of a Subscription since it was made, and gauges of what
// it holds now. Reading them is cheap: no request is sent.
type Stats struct {
	// Pulls counts pull requests sent; Messages and Bytes what they brought.
	Pulls, Messages, Bytes uint64
	// Acks, Naks, Terms and InProgress count acknowledgements sent, those of HandedBack included.
	Acks, Naks, Terms, InProgress uint64
	// HandedBack counts messages that were NAKed without delay by the client: those that arrived for a caller
	// that had gone, and those not started at an end. Dropped counts, with ack policy none, what was lost: see
	// [Subscription.Close].
	HandedBack, Dropped uint64
	// Redelivered counts redeliveries that Messages and Consume got.
	Redelivered uint64
	// Silent counts pulls that the server never answered.
	Silent uint64
	Attempts
	// Reconnects counts how often the connection came back.
	Reconnects uint64
	// Statuses counts status frames by code.
	Statuses map[int]uint64

	// Outstanding is how many messages open pulls may still bring.
	Outstanding int
	// Buffered and Running are the messages that Messages and Consume hold ready and are handling; Window is
	// how many they may hold or have on order.
	Buffered, Running, Window int
	// Pin is the pin id held in the Subscription's group, or "".
	Pin string
}

// Attempts counts in Failed the attempts of Consume's handlers that failed, in TimedOut those of them that had run for
// [HandlerTimeout], and in the others what came of them: see [EventOutcome]. It counts those that make an [Event].
type Attempts struct {
	Failed, TimedOut, Retried, DeadLettered, Terminated uint64
}

// Stats returns the Subscription's counters.
func (s *Subscription) Stats() Stats {
	ps, outstanding, pin := s.driver.Stats(s.defaults.terms.Group)
	st := Stats{
		Pulls: ps.Pulls, Messages: ps.Messages, Bytes: ps.Bytes,
		Acks: s.counts.acks.Load(), Naks: s.counts.naks.Load(),
		Terms: s.counts.terms.Load(), InProgress: s.counts.inProgress.Load(),
		HandedBack: ps.HandedBack + s.counts.handedBack.Load(), Dropped: ps.Dropped, Silent: ps.Silent,
		Attempts: Attempts{
			Failed: s.counts.failed.Load(), TimedOut: s.counts.timedOut.Load(), Retried: s.counts.retried.Load(),
			DeadLettered: s.counts.deadLettered.Load(), Terminated: s.counts.terminated.Load(),
		},
		Redelivered: s.counts.redelivered.Load(), Reconnects: s.driver.Reconnects(),
		Outstanding: outstanding, Pin: pin, Statuses: ps.Statuses,
	}
	if s.bound.Load().ackNone {
		st.Dropped += s.Missed()
	}
	for _, r := range s.openRuns() {
		waiting, running := r.pool.Size()
		st.Buffered += waiting
		st.Running += running
		st.Window += r.pool.Window()
	}
	return st
}
