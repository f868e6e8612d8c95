package pull

import "slices"

// Events that concern all pulls at once: the connection, permissions, Close.

// Disconnected stops pulling until the connection is back. A call that has messages returns them: more may take long.
func (e *Engine) Disconnected() {
	e.timed = false
	for _, s := range e.shares {
		for _, d := range slices.Clone(s.demands) {
			switch {
			case d.Mode == Some && d.n > 0:
				e.finish(d, nil)
			case d.Mode == Standing && !e.down:
				e.report(d, news{trouble: ErrLost})
			}
		}
	}
	e.down = true
	e.leaving.drainAll()
	e.proven()
}

// Reconnected ends all pulls. The server may have forgotten them or not, so their inboxes are drained, and
// their demands are covered again. The consumer may have been recreated.
func (e *Engine) Reconnected(now At) {
	e.at(now)
	e.down = false
	for _, s := range e.shares {
		e.endAll(now, s, true)
		s.reconnected()
		e.cover(now, s)
	}
	e.out.do(Effect{Kind: Doubt})
}

// endAll ends the pulls of a share group.
func (e *Engine) endAll(now At, s *share, lost bool) {
	for len(s.pulls) > 0 {
		e.end(now, s.pulls[0], ending{lost: lost, unsure: true})
	}
}

// Fail ends all demands with err, and all pulls: the server takes none, not even those on their way. With
// final, later demands fail too.
func (e *Engine) Fail(now At, err error, final bool) {
	e.at(now)
	if final && e.dead == nil {
		e.dead = err
	}
	for _, s := range e.shares {
		for len(s.demands) > 0 {
			e.finish(s.demands[0], err)
		}
		if !final {
			e.endAll(now, s, true)
		}
		e.cover(now, s)
	}
	if final && !e.closed {
		e.leaving.drainAll()
	}
}

// Close ends all demands with err, and all pulls. Messages on the wire are handed back.
func (e *Engine) Close(now At, err error) {
	e.closed = true
	e.Fail(now, err, true)
	for _, s := range e.shares {
		e.endAll(now, s, false)
	}
	e.dropStashes()
	e.leaving.drainAll()
	e.proven()
	for _, ib := range e.unused {
		e.out.do(Effect{Kind: Unsubscribe, Inbox: ib})
	}
	e.unused = nil
}
