package jetpull

// Stats are counters of a Subscription since it was made, and gauges of what
// it holds now. Reading them is cheap: no request is sent.
type Stats struct {
	// Pulls counts pull requests sent; Messages and Bytes what they brought.
	Pulls, Messages, Bytes uint64
	// Acks, Naks, Terms and InProgress count acknowledgements sent, those of
	// HandedBack included.
	Acks, Naks, Terms, InProgress uint64
	// HandedBack counts messages that arrived for a caller that had gone and
	// were NAKed; Dropped those that a consumer with ack policy none lost by
	// Close.
	HandedBack, Dropped uint64
	// Redelivered counts messages that Messages and Consume saw more than once
	// delivered.
	Redelivered uint64
	// Silent counts pulls that the server never answered.
	Silent uint64
	// Reconnects counts how often the connection came back.
	Reconnects uint64
	// Statuses counts status frames by code.
	Statuses map[int]uint64

	// Outstanding is how many messages open pulls may still bring.
	Outstanding int
	// Buffered and Running are the messages that Messages and Consume hold
	// ready and are handling; Window is how many they may hold. Running counts
	// also those whose handler failed at their last delivery and that are held
	// until their dead letter is stored; the window does not.
	Buffered, Running, Window int
	// Pin is the pin id held in the Subscription's group, or "".
	Pin string
}

// Stats returns the Subscription's counters.
func (s *Subscription) Stats() Stats {
	e := s.engine
	e.mu.Lock()
	rs := e.rules.stats
	outstanding := inboxSlots - statusSlots - e.rules.room
	pin := e.rules.pins.id(s.defaults.terms.group)
	buffered, running, window := 0, 0, 0
	for _, open := range e.streams {
		b, r := open.queue.size()
		buffered, running, window = buffered+b, running+r+open.aside.len(), window+open.windowSize()
	}
	e.mu.Unlock()
	st := Stats{
		Pulls: rs.pulls, Messages: rs.messages, Bytes: rs.bytes,
		Acks: s.counts.acks.Load(), Naks: s.counts.naks.Load(),
		Terms: s.counts.terms.Load(), InProgress: s.counts.inProgress.Load(),
		HandedBack: rs.handedBack + s.counts.handedBack.Load(), Dropped: rs.dropped, Silent: rs.silent,
		Redelivered: s.counts.redelivered.Load(), Reconnects: s.counts.reconnects.Load(),
		Outstanding: outstanding, Buffered: buffered, Running: running, Window: window,
		Pin: pin, Statuses: make(map[int]uint64, len(statusCodes)),
	}
	for i, code := range statusCodes {
		if rs.codes[i] > 0 {
			st.Statuses[code] = rs.codes[i]
		}
	}
	return st
}
