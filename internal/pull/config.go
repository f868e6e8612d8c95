package pull

// config is the state of reading the consumer's configuration.
type config struct {
	reading bool // the driver reads the configuration
	stale   bool // the configuration may have changed since the reading began: another follows it
	// awaited is set while standing demands wait for a reading, because the consumer was gone and may have been recreated.
	awaited bool
}

// readConfig requests a reading of the configuration that begins from now on.
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

// Configured takes the limits that a reading brought, or its failure. If gone is not nil, the consumer does not exist: calls
// with a deadline end with it, and standing demands wait until the consumer is found. It reports whether to read again, after
// a while.
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
	c.reading = !e.closed && !e.down && (c.stale || c.awaited && e.standing > 0)
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
