package pull

import "slices"

// NextTick returns when Tick is due, or 0 for never. Deadlines of pulls and demands count even if they have passed, except those of pulls
// while the connection is down. Other times count only if they are in the future: once overdue, they wait for another event.
func (e *Engine) NextTick() At {
	if e.timed {
		return e.due
	}
	e.timed, e.due = true, 0
	by := func(t At) {
		if t > 0 && (e.due == 0 || t < e.due) {
			e.due = t
		}
	}
	later := func(t At) {
		if t > e.now {
			by(t)
		}
	}
	for _, s := range e.shares {
		for _, p := range s.pulls {
			if !e.down {
				by(p.deadline)
			}
			if p.ended {
				later(p.promised)
			}
		}
		for _, d := range s.demands {
			by(d.Deadline)
			if d.Mode == Standing {
				later(d.stand.retryAt)
				if e.PinID(s.terms.Group) != "" && e.limits.Pinned {
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
	return e.due
}

// Tick acts on the deadlines that have passed.
func (e *Engine) Tick(now At) {
	e.at(now)
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
		e.cover(now, s)
	}
	e.leaving.drain(func(ib *Inbox) bool { return ib.leftAt+leftMost <= now })
	e.proven()
	e.forgetShares()
}

// overdue acts on a pull whose deadline has passed. After the first, a call continues without the pull. After the next, the pull is given up.
func (e *Engine) overdue(now At, p *pull) {
	switch {
	case p.ended:
		e.end(now, p, ending{status: p.status, unsure: true})
	case p.silent:
		e.giveUp(now, p, p.inDoubt)
	default:
		p.miss(now)
		e.leaving.prove(now)
		e.conclude(now, p, &ending{silent: true})
	}
}

// Answered says that the consumer's server has answered a request that began at began, whatever the answer was. The first answer after
// a stall does not count for inboxes: just before it, the server may have received pulls that were held up on the link, and it may not
// have sent their messages yet.
func (e *Engine) Answered(now, began At) {
	e.at(now)
	stalled := e.leaving.answered(now, began)
	for _, p := range e.inDoubt() {
		if p.missedAt <= began && !p.answered(now, e.limits.Replay) {
			e.giveUp(now, p, false)
			p.inbox.since = p.missedAt // it drains with the others
		}
	}
	if !stalled {
		e.leaving.drain(func(ib *Inbox) bool { return ib.since <= began })
	}
	e.proven()
	for _, s := range e.shares {
		e.cover(now, s)
	}
}
