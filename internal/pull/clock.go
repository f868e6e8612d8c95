package pull

import "slices"

// Plan hands over the messages of standing demands, gives up the pulls that are not needed any more, and sends those that are. The driver calls it
// after the events that it has for the engine.
func (e *Engine) Plan(now At) {
	for _, s := range e.shares {
		for _, d := range s.demands {
			if d.Mode == Standing && len(d.Got) > 0 {
				e.out.handOver(d)
			}
		}
	}
	e.free = e.slots - e.onOrder()
	for _, s := range e.shares {
		e.coverShare(now, s)
	}
	// While the connection is down, no requests are sent.
	e.leaving.prove(now, !e.closed && !e.down && (e.leaving.subscribed() || len(e.inDoubt()) > 0))
	e.forgetShares()
	e.due = e.nextDue(now)
}

// NextTick returns when Tick is due, or 0 for never, as of the last Plan.
func (e *Engine) NextTick() At { return e.due }

// nextDue returns the earliest deadline. Those of pulls and demands count even if they have passed, except those of pulls while the connection is
// down. Other times count only if they are in the future: once overdue, they wait for another event.
func (e *Engine) nextDue(now At) (due At) {
	by := func(t At) {
		if t > 0 && (due == 0 || t < due) {
			due = t
		}
	}
	later := func(t At) {
		if t > now {
			by(t)
		}
	}
	for _, s := range e.shares {
		for _, p := range s.pulls {
			if !e.down {
				by(p.deadline)
			}
		}
		for _, d := range s.demands {
			by(d.Deadline)
			if d.Mode == Standing {
				later(d.stand.retryAt)
				if e.limits.Pinned && e.PinID(s.terms.Group) != "" {
					later(d.stand.lastPull + e.limits.pinRefresh())
				}
			}
		}
		later(s.retryAt)
	}
	for _, ib := range e.leaving.inboxes {
		if !ib.drains {
			later(ib.leftAt + leftMost)
		}
	}
	return due
}

// Tick acts on the deadlines that have passed.
func (e *Engine) Tick(now At) {
	for _, s := range e.shares {
		for _, p := range slices.Backward(slices.Clone(s.pulls)) {
			if p.deadline <= now && !e.down {
				e.overdue(now, p)
			}
		}
		for _, d := range slices.Clone(s.demands) {
			if d.Deadline > 0 && d.Deadline <= now {
				e.finish(d, &Timeout{d.cause})
			}
		}
	}
	e.leaving.drain(func(ib *Inbox) bool { return ib.leftAt+leftMost <= now })
}

// overdue acts on a pull whose deadline has passed. A pull of calls is given up, and the calls continue with another one. A pull of a standing demand
// stays open as long as it may exist at the server.
func (e *Engine) overdue(now At, p *pull) {
	switch {
	case p.ended:
		e.end(now, p, ending{status: p.status})
		return
	case p.silent:
		e.giveUp(now, p, p.inDoubt)
		return
	case p.owner != nil || e.limits.Replay:
		p.miss(now)
	default:
		e.giveUp(now, p, false)
	}
	e.conclude(now, p, &ending{silent: true})
}

// Answered says that the consumer's server has answered a request that began at began, whatever the answer was. The first answer after
// a stall does not count for inboxes: just before it, the server may have received pulls that were held up on the link, and it may not
// have sent their messages yet.
func (e *Engine) Answered(now, began At) {
	stalled := e.leaving.answered(now, began)
	for _, p := range e.inDoubt() {
		if p.missedAt <= began {
			p.answered(now, e.limits.Replay)
		}
	}
	if !stalled {
		e.leaving.drain(func(ib *Inbox) bool { return ib.since <= began })
	}
}
