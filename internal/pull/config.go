package pull

// config is the state of reading the consumer's configuration.
type config struct {
	reading bool // a reading is under way
	stale   bool // and the configuration may have changed since it began
	// awaited is set while standing demands wait for a reading, because the consumer was gone and may have been recreated.
	awaited bool
}

// readConfig requests a reading of the configuration. One that is under way may be out of date: another follows it.
func (e *Engine) readConfig() {
	switch {
	case e.closed:
	case e.config.reading:
		e.config.stale = true
	default:
		e.config.reading = true
		e.do(Effect{Kind: ReadConfig})
	}
}

// awaitConfig stops the pulls of standing demands until the configuration has been read.
func (e *Engine) awaitConfig() {
	e.config.awaited = true
	e.readConfig()
}

// Configured takes the limits that a reading brought, or its failure. If gone is not nil, the consumer does not exist: calls with a
// deadline end with it, and standing demands wait until the consumer is found. It reports whether to read again, after a while.
func (e *Engine) Configured(now At, lim Limits, gone, err error) (again bool) {
	c := &e.config
	if err == nil {
		c.awaited = c.awaited && c.stale
		if e.limits.AckNone && !lim.AckNone {
			// The late messages came from a consumer that is gone; the new one delivers them.
			for _, s := range e.shares {
				e.stats.Dropped += uint64(len(s.stash))
				s.stash = nil
			}
		}
		e.limits = lim
	}
	c.awaited = c.awaited || gone != nil
	c.reading = !e.closed && e.standing > 0 && c.awaited || c.stale
	c.stale = false
	for _, s := range e.shares {
		for _, d := range append([]*Demand(nil), s.demands...) {
			switch {
			case gone == nil:
			case d.Mode == Standing:
				e.trouble(d, gone)
			default:
				e.finish(d, gone)
			}
		}
		e.cover(now, s)
	}
	return c.reading
}
