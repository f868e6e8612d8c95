package pull

import "time"

const (
	// ExpiresMargin is how much earlier than the caller's deadline the server ends a pull (ADR-13), so that its
	// status arrives in time.
	ExpiresMargin = 100 * time.Millisecond
	// StandingExpires is how long the pulls of a standing demand live.
	StandingExpires = 30 * time.Second

	// quickSilence is how long a no-wait pull may stay unanswered, and oneShotSilence how long a one-shot that has brought
	// messages.
	quickSilence   = time.Second
	oneShotSilence = 500 * time.Millisecond
	// leastPatience is the least that a no-wait pull may stay silent where calls with short waits share it.
	leastPatience = 150 * time.Millisecond
	// replyLife is how long no-wait pulls may have a common reply subject: less than the server needs to elect a leader.
	replyLife = 100 * time.Millisecond
	// expiryGrace is how long after its expiry a pull may still be answered.
	expiryGrace = time.Second
	// callBeat is the heartbeat of the long pulls of calls with a deadline, where the wait is long enough, and
	// leastBeat the shortest that is asked for.
	callBeat  = time.Second
	leastBeat = 20 * time.Millisecond
	// StandingHeartbeat is the heartbeat of a standing demand's pulls: one that the server has dropped without a status
	// is missed within 5 s.
	StandingHeartbeat = 2 * time.Second
	// stepWidth is how long after a multiple of StandingHeartbeat a pull counts as sent on it.
	stepWidth = 250 * time.Millisecond
	// probeExpires is the life of the pull that is sent after trouble.
	probeExpires = 600 * time.Millisecond

	firstBackOff  = 250 * time.Millisecond
	lastBackOff   = 800 * time.Millisecond
	silentBackOff = 5 * time.Second

	// promiseGrace is how long messages may take that a status has counted. On R3 they wait for a quorum, and the
	// status does not. promiseHold is how long a standing demand waits for them before it orders others instead: they
	// can be lost, for example with a leader.
	promiseGrace = 2 * time.Second
	promiseHold  = 800 * time.Millisecond

	minWait = time.Millisecond
)

// schedule makes Tick due at t at the latest.
func (e *Engine) schedule(t At) {
	if t > 0 && (e.due == 0 || t < e.due) {
		e.due = t
	}
}

// NextTick is when Tick is due; 0: never.
func (e *Engine) NextTick() At { return e.due }

// Tick acts on the deadlines that have passed.
func (e *Engine) Tick(now At) {
	for _, s := range e.shares {
		for i := len(s.pulls) - 1; i >= 0 && !e.down; i-- {
			if p := s.pulls[i]; p.deadline <= now {
				e.end(now, p, ending{silent: !p.ended, status: p.status, unsure: true})
			}
		}
		for _, d := range append([]*Demand(nil), s.demands...) {
			if d.Deadline > 0 && d.Deadline <= now {
				e.finish(d, &Timeout{d.cause})
			}
		}
		e.cover(now, s)
	}
	e.forgetShares()
	e.scheduleAll(now)
}

// scheduleAll finds when Tick is due after the one at now. A deadline that is still overdue waits for another event,
// such as a reconnect.
func (e *Engine) scheduleAll(now At) {
	e.due = 0
	later := func(t At) {
		if t > now {
			e.schedule(t)
		}
	}
	for _, s := range e.shares {
		for _, p := range s.pulls {
			later(p.deadline)
			if p.ended {
				later(p.promisedUntil())
			}
		}
		for _, d := range s.demands {
			later(d.Deadline)
			if d.Mode == Standing {
				later(d.stand.retryAt)
				if e.limits.Pinned && e.pins[s.terms.Group].id != "" {
					later(d.stand.lastPull + e.pinRefresh())
				}
			}
		}
		later(s.retryAt)
	}
}

// promisedUntil is how long the messages count as on order that are counted by the status that ended p.
func (p *pull) promisedUntil() At { return p.deadline - promiseGrace + promiseHold }

// maxSilence is how long p may stay silent after it was sent.
func (p *pull) maxSilence() time.Duration {
	switch {
	case p.kind == noWait:
		return p.patience
	case p.req.Heartbeat > 0:
		return min(2*p.req.Heartbeat+ExpiresMargin, p.req.Expires+expiryGrace)
	}
	return p.req.Expires + expiryGrace
}

// answered notes that the server has answered p.
func (e *Engine) answered(now At, p *pull) {
	switch {
	case p.ended, p.kind == oneShot && p.got > 0:
		return
	case p.kind == noWait:
		p.deadline = now + p.maxSilence()
	case p.req.Heartbeat > 0:
		p.deadline = min(now+p.maxSilence(), p.sent+p.req.Expires+expiryGrace)
	}
	e.schedule(p.deadline)
}

// expiresIn is the expiry of a pull whose caller waits for left.
func expiresIn(left time.Duration) time.Duration {
	if left >= 2*ExpiresMargin {
		return left - ExpiresMargin
	}
	return max(minWait, left-left/10) // the margin would take all of a short wait
}

// capExpires returns d, or the consumer's MaxRequestExpires if that is shorter.
func (e *Engine) capExpires(d time.Duration) time.Duration {
	if e.limits.Expires > 0 {
		return min(d, e.limits.Expires)
	}
	return d
}

// callHeartbeat is the heartbeat of a long pull. By default two missed ones cost no more than half of the wait, and there
// is none if that would be below leastBeat. The server refuses more than half of the expiry.
func callHeartbeat(asked, expires time.Duration) time.Duration {
	if asked > 0 {
		if 2*asked > expires {
			return 0
		}
		return asked
	}
	if beat := min(callBeat, expires/4-ExpiresMargin/4); beat >= leastBeat {
		return beat
	}
	return 0
}

// standingExpires is how long a pull of a standing demand lives.
func (e *Engine) standingExpires() time.Duration {
	if e.limits.Pinned && e.limits.PinTTL > 0 {
		return e.capExpires(min(StandingExpires, e.pinRefresh()))
	}
	return e.capExpires(StandingExpires)
}

// inStep shortens expires so that the pull ends, and the next one begins, on a multiple of StandingHeartbeat. Then all idle
// pulls of a connection have their heartbeats at the same time, which wakes the process once for all of them. A pull that
// begins at another time lives for two heartbeats at most, so that the next is in step.
func inStep(now At, expires time.Duration) time.Duration {
	if expires < 2*StandingHeartbeat {
		return expires
	}
	off := now % StandingHeartbeat
	if off > stepWidth {
		expires = 2 * StandingHeartbeat
	}
	return expires - off
}

// backOff delays the next pull of s.
func (e *Engine) backOff(now At, s *share) {
	s.retryAt = now + e.backOffTime(s.tries, lastBackOff)
	e.schedule(s.retryAt)
	s.tries++
}

// backOffTime is the wait before try n+1, jittered by a fifth either way, most at most.
func (e *Engine) backOffTime(n int, most time.Duration) time.Duration {
	d := firstBackOff
	for range min(n, 8) {
		d = min(2*d, most*5/6)
	}
	return d + time.Duration((e.rng.Float64()*2-1)*float64(d)/5)
}
