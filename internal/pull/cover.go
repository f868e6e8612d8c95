package pull

// cover drops the pulls that a share group no longer needs and sends pulls for the demands that no open pull covers.
func (e *Engine) cover(now At, s *share) {
	e.coverShare(now, s)
	e.refill(now)
}

// refill pulls for the share groups that found no free slots, when some have become free.
func (e *Engine) refill(now At) {
	if !e.capacity.awaited || e.capacity.free < 1 {
		return
	}
	e.capacity.awaited = false
	for _, s := range e.shares {
		e.coverShare(now, s)
	}
}

func (e *Engine) coverShare(now At, s *share) {
	// With ack policy none a pull is left open until it expires: messages to an inbox that was dropped are lost.
	for i := len(s.pulls) - 1; i >= 0 && !e.limits.AckNone; i-- {
		p := s.pulls[i]
		if p.kind != noWait && p.demands == 0 && (p.owner == nil || p.owner.Done) {
			e.end(now, p, ending{unsure: true})
		}
	}
	if len(s.demands) == 0 || e.closed {
		s.claimed = false
		return
	}
	if e.down || now < s.retryAt {
		if !e.down {
			e.schedule(s.retryAt) // for a demand that was posted while its share group backs off
		}
		return
	}
	e.coverNoWait(now, s)
	for e.coverLong(now, s, Some) || e.coverLong(now, s, Fill) {
		continue
	}
	for _, d := range s.demands {
		if d.Mode == Standing {
			e.coverStanding(now, d)
		}
	}
}

// coverNoWait sends one no-wait pull for all demands that have had none. While one is in flight, new demands
// wait and share the next.
func (e *Engine) coverNoWait(now At, s *share) {
	var p, inFlight *pull
	for _, o := range s.pulls {
		if o.kind == noWait && !o.ended {
			inFlight = o
		}
	}
	batch := 0
	for _, d := range s.demands {
		switch {
		case d.Mode == Standing, d.pull != nil, d.long:
			continue
		case inFlight != nil:
			inFlight.deadline = min(inFlight.deadline, now+max(leastPatience, (d.Deadline-now)/2)) // half of d's wait
			e.schedule(inFlight.deadline)
			continue
		case batch > 0 && e.limits.Batch > 0 && batch+d.Want > e.limits.Batch:
			continue
		}
		if p == nil {
			if e.full() {
				continue
			}
			p = e.newPull(now, s, noWait, e.pooled())
			p.req.NoWait, p.req.MaxBytes, p.patience = true, d.bytesLeft(), quickSilence
		}
		batch += d.Want
		p.patience = min(p.patience, (d.Deadline-now)/2)
		d.attach(p)
	}
	if p != nil {
		e.send(now, p, min(batch, e.capacity.free))
	}
}

// full reports whether no slot is free for another pull, and notes that one waits.
func (e *Engine) full() bool {
	e.capacity.awaited = e.capacity.awaited || e.capacity.free < 1
	return e.capacity.free < 1
}

// coverLong sends a long pull for the demands of a mode that found nothing, as many of them as one pull may
// serve, and reports whether it did.
func (e *Engine) coverLong(now At, s *share, mode Mode) bool {
	var p *pull
	batch, capped, heartbeat := 0, true, true
	var until At
	for _, d := range s.demands {
		if d.Mode != mode || !d.long || d.pull != nil || e.shareLong(s, d) {
			continue
		}
		want := d.Want
		if mode == Some && s.claimed {
			want = 1
		}
		if batch > 0 && e.limits.Batch > 0 && batch+want > e.limits.Batch {
			continue
		}
		if p == nil {
			if e.full() {
				return false
			}
			p = e.newPull(now, s, s.longKind(mode), &Inbox{Prefix: e.base + ".", single: true})
			p.req.MaxBytes = d.bytesLeft()
			capped = !s.unshared || !d.Chosen // a wait that the user chose is refused where it is over the limit
		}
		batch += want
		until, heartbeat = max(until, d.Deadline), heartbeat && !d.noHeartbeat
		d.attach(p)
	}
	if p == nil {
		return false
	}
	p.req.NoWait = p.kind == oneShot
	p.req.Expires = expiresIn(until - now)
	if capped {
		p.req.Expires = e.capExpires(p.req.Expires)
	}
	if heartbeat {
		p.req.Heartbeat = callHeartbeat(s.terms.Heartbeat, p.req.Expires)
	}
	e.send(now, p, min(batch, e.longMost()))
	return true
}

// longKind is the kind of a long pull for a demand of a mode.
func (s *share) longKind(mode Mode) kind {
	if mode == Fill || s.claimed {
		return longPull
	}
	return oneShot
}

// overLimits reports whether d alone asks for more than the consumer's limits allow. The server refuses that, and
// its refusal is for no other call, so d shares its pulls with none.
func (e *Engine) overLimits(now At, d *Demand) bool {
	l := &e.limits
	return l.Batch > 0 && d.Want > l.Batch || l.Bytes > 0 && d.MaxBytes > l.Bytes ||
		d.Chosen && l.Expires > 0 && expiresIn(d.Deadline-now) > l.Expires
}

// longMost is how many slots a pull may take that can stay open for long: half of the free ones, so that some are
// left for calls with other terms.
func (e *Engine) longMost() int { return (e.capacity.free + 1) / 2 }

// shareLong lets an open long pull cover d if it will bring all messages that d wants beyond those for its own demands.
func (e *Engine) shareLong(s *share, d *Demand) bool {
	for _, p := range s.pulls {
		if !p.ended && p.kind == s.longKind(d.Mode) && p.left-p.need >= d.Want && !s.unshared && p.sent+p.req.Expires+2*ExpiresMargin >= d.Deadline {
			d.attach(p)
			return true
		}
	}
	return false
}
