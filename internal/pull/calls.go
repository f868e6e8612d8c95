package pull

import "slices"

// Post accepts a demand.
func (e *Engine) Post(now At, d *Demand) {
	e.at(now)
	if d.Mode == Standing {
		d.stand = &standing{window: d.Window}
	}
	if e.dead != nil {
		e.finish(d, e.dead)
		return
	}
	s := e.shareOf(d.Terms, d.Mode != Standing && (d.MaxBytes > 0 || e.limits.exceeded(now, &d.Ask)))
	d.share = s
	s.demands = append(s.demands, d)
	e.unstash(d) // before a pull is sent for it
	if !d.Done && d.n > 0 && d.Mode == Some {
		e.finish(d, nil)
	}
	e.cover(now, s)
}

// Cancel ends a demand whose caller leaves with err.
func (e *Engine) Cancel(now At, d *Demand, err error) {
	if d.Done {
		return
	}
	e.at(now)
	e.finish(d, err)
	e.cover(now, d.share)
}

// Credit returns messages of a standing demand to its window.
func (e *Engine) Credit(now At, d *Demand, c Credit) {
	e.at(now)
	d.stand.credit(c)
	if !d.Done {
		e.cover(now, d.share)
	}
}

// Return takes back a message that a standing demand with these terms got and does not need. With ack policy none, the next demand gets it.
// Otherwise it is handed back to the server.
func (e *Engine) Return(now At, terms Terms, m Message, size int) {
	e.at(now)
	s := e.shareOf(terms, false)
	if d := s.next(nil); d != nil && e.limits.AckNone {
		e.deliver(d, m, size)
	} else {
		e.late(s, m, size)
	}
	e.cover(now, s)
}

// Events that concern all pulls at once: the connection, permissions, Close.

// Disconnected stops pulling until the connection is back. A call that has messages returns them, because more may take long.
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

// Reconnected ends all pulls. The server may or may not have forgotten them, so their inboxes are drained, and
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

// Fail ends all demands with err, and all pulls, because the server accepts none, not even those in flight. If
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

// Close ends all demands with err, and all pulls. Messages in flight are handed back.
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
