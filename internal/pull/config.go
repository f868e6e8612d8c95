package pull

// config is the state of reading the consumer's configuration.
type config struct {
	reading bool // a reading is under way
	// awaited is set while standing demands wait for a reading, because the consumer was gone and may have been recreated.
	awaited bool
	readAt  At  // when the next reading begins, while awaited
	tries   int // how many have begun since
	// epoch counts the events that may have changed the configuration. A reading from before the last of them may be out of
	// date.
	epoch uint64
}

// readConfig requests one reading of the configuration; nothing waits for the answer.
func (e *Engine) readConfig() {
	if !e.config.reading && !e.closed {
		e.config.reading = true
		e.do(Effect{Kind: ReadConfig})
	}
}

// awaitConfig stops the pulls of standing demands until the configuration has been read.
func (e *Engine) awaitConfig(now, from At) {
	c := &e.config
	c.epoch++
	if !c.awaited {
		c.awaited, c.tries, c.readAt = true, 0, from
	}
	e.readIfDue(now)
}

// readIfDue requests a reading if it is due and a demand waits for it. A reading can stay unanswered while
// the consumer has no leader, so the next does not wait for its end.
func (e *Engine) readIfDue(now At) {
	if !e.awaitsConfig() {
		return
	}
	if c := &e.config; now >= c.readAt {
		c.readAt = now + e.backOffTime(c.tries, lastBackOff)
		c.tries++
		c.reading = true
		e.do(Effect{Kind: ReadConfig})
	}
	e.schedule(e.config.readAt)
}

// awaitsConfig reports whether a demand waits for a reading.
func (e *Engine) awaitsConfig() bool {
	return e.config.awaited && !e.down && !e.closed && e.standing > 0
}

// Epoch changes when the configuration may have changed; see Configured.
func (e *Engine) Epoch() uint64 { return e.config.epoch }

// Configured takes the limits that a reading brought. epoch is what Epoch returned when the
// reading was sent.
func (e *Engine) Configured(now At, lim Limits, epoch uint64) {
	e.config.reading = false
	if epoch != e.config.epoch {
		return
	}
	e.config.awaited = false
	if e.limits.AckNone && !lim.AckNone {
		// The late messages came from a consumer that is gone; the new one delivers them.
		for _, s := range e.shares {
			e.stats.Dropped += uint64(len(s.stash))
			s.stash = nil
		}
	}
	e.limits = lim
	for _, s := range e.shares {
		e.cover(now, s)
	}
}

// Unreadable takes the failure of a reading. If gone is not nil, the consumer does not exist, and calls with a deadline
// end with it. Standing demands wait until the consumer is found.
func (e *Engine) Unreadable(now At, gone error) {
	e.config.reading = false
	if gone == nil {
		return
	}
	e.awaitConfig(now, now+e.backOffTime(0, lastBackOff))
	for _, s := range e.shares {
		for _, d := range append([]*Demand(nil), s.demands...) {
			if d.Mode == Standing {
				e.trouble(d, gone)
			} else {
				e.finish(d, gone)
			}
		}
		e.cover(now, s)
	}
}
