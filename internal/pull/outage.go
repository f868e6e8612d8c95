package pull

// Events that concern all pulls at once: the connection, permissions, Close.

// Disconnected stops pulling until the connection is back. A call that has messages returns them: more may take long.
func (e *Engine) Disconnected() {
	for _, s := range e.shares {
		for _, d := range append([]*Demand(nil), s.demands...) {
			switch {
			case d.Mode == Some && d.n > 0:
				e.finish(d, nil)
			case d.Mode == Standing && !e.down:
				e.trouble(d, ErrLost)
			}
		}
	}
	e.down = true
}

// Reconnected ends all pulls. The server may have forgotten them or not, so their inboxes are drained, and
// their demands are covered again. The consumer may have been recreated, so its configuration is read.
func (e *Engine) Reconnected(now At) {
	e.down = false
	for _, s := range e.shares {
		for len(s.pulls) > 0 {
			e.end(now, s.pulls[0], ending{lost: true, unsure: true})
		}
		s.retryAt, s.tries = 0, 0
		for _, d := range s.demands {
			if d.Mode == Standing {
				d.stand.silent, d.stand.retryAt = 0, 0
			}
		}
		e.cover(now, s)
	}
	e.readConfig()
}

// Fail ends all demands with err, and all pulls: the server takes none, not even those on their way. With
// final, later demands fail too.
func (e *Engine) Fail(now At, err error, final bool) {
	if final && e.dead == nil {
		e.dead = err
	}
	for _, s := range e.shares {
		for len(s.demands) > 0 {
			e.finish(s.demands[0], err)
		}
		for !final && len(s.pulls) > 0 {
			e.end(now, s.pulls[0], ending{unsure: true})
		}
		e.cover(now, s)
	}
}

// Close ends all demands with err, and all pulls. Messages on the wire are handed back.
func (e *Engine) Close(now At, err error) {
	e.closed = true
	e.Fail(now, err, true)
	for _, s := range e.shares {
		for len(s.pulls) > 0 {
			e.end(now, s.pulls[0], ending{unsure: true})
		}
		e.stats.Dropped += uint64(len(s.stash))
		s.stash = nil
	}
	for _, ib := range e.unused {
		e.do(Effect{Kind: Unsubscribe, Inbox: ib})
	}
	e.unused = nil
}
