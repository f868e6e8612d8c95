package pull

// settle drops the pulls that a share group needs no more and covers the demand that is not covered.
func (e *Engine) settle(now At, s *share) {
	e.grow(now)
	e.settleShare(now, s)
	e.refill(now)
}

// refill lets the share groups that had no room for a pull have what has become free.
func (e *Engine) refill(now At) {
	if !e.capacity.short || e.capacity.room < 1 {
		return
	}
	e.capacity.short = false
	for _, s := range e.shares {
		e.settleShare(now, s)
	}
}

func (e *Engine) settleShare(now At, s *share) {
	// With ack policy none a pull is left open until it expires: what the server sends to an inbox that was
	// dropped is lost.
	for i := len(s.pulls) - 1; i >= 0 && !e.limits.AckNone; i-- {
		p := s.pulls[i]
		if p.kind != noWait && p.demands == 0 && (p.owner == nil || p.owner.Done) {
			e.end(now, p, ending{unsure: true})
		}
	}
	if len(s.demands) == 0 || e.closed {
		s.plain = false
		return
	}
	if e.down || now < s.retryAt {
		if !e.down {
			e.schedule(s.retryAt) // a demand that comes while its share group backs off
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

// coverNoWait sends one no-wait pull for all demands that have not looked yet. While one is in flight the
// demands that come wait and share the next.
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
		case e.shareNoWait(now, s, d):
			continue
		case inFlight != nil:
			e.hurry(now, inFlight, d)
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
		e.send(now, p, min(batch, e.capacity.room))
	}
}

// hurry lets p, which d waits for, be silent for no longer than half of d's wait.
func (e *Engine) hurry(now At, p *pull, d *Demand) {
	p.deadline = min(p.deadline, now+max(leastPatience, (d.Deadline-now)/2))
	e.schedule(p.deadline)
}

// full reports whether there is no room for another pull, and notes that one waits.
func (e *Engine) full() bool {
	e.capacity.short = e.capacity.short || e.capacity.room < 1
	return e.capacity.room < 1
}

// coverLong sends a long pull for the demands of a mode that found nothing, as many of them as one pull may
// serve, and reports whether it did.
func (e *Engine) coverLong(now At, s *share, mode Mode) bool {
	var p *pull
	batch, over, loud := 0, false, false
	var until At
	for _, d := range s.demands {
		if d.Mode != mode || !d.long || d.pull != nil || e.shareLong(s, d) {
			continue
		}
		want := d.Want
		if mode == Some && s.plain {
			want = 1
		}
		if batch > 0 && e.limits.Batch > 0 && batch+want > e.limits.Batch {
			continue
		}
		if p == nil {
			if e.full() {
				return false
			}
			k := oneShot
			if mode == Fill || s.plain {
				k = plain
			}
			p = e.newPull(now, s, k, e.single())
			p.req.MaxBytes = d.bytesLeft()
			over = e.isOver(now, d)
		} else if over || e.isOver(now, d) {
			continue // the server's refusal is for the one demand that asked for more
		}
		batch += want
		until, loud = max(until, d.Deadline), loud || d.loud
		d.attach(p)
	}
	if p == nil {
		return false
	}
	p.req.NoWait = p.kind == oneShot
	p.req.Expires = expiresIn(until - now)
	if !over {
		p.req.Expires = e.capExpires(p.req.Expires)
	}
	if !loud {
		p.req.Heartbeat = callHeartbeat(s.terms.Heartbeat, p.req.Expires)
	}
	e.send(now, p, min(batch, e.waitingRoom()))
	return true
}

// isOver reports whether d asks for a wait that the consumer refuses.
func (e *Engine) isOver(now At, d *Demand) bool {
	return d.Chosen && e.limits.Expires > 0 && expiresIn(d.Deadline-now) > e.limits.Expires
}

// waitingRoom is what a pull that may stay open for long can take of the room: half, so that calls with other
// terms are not left without.
func (e *Engine) waitingRoom() int { return (e.capacity.room + 1) / 2 }

// shareNoWait lets a no-wait pull in flight with want to spare cover d.
func (e *Engine) shareNoWait(now At, s *share, d *Demand) bool {
	for _, p := range s.pulls {
		if p.kind == noWait && !p.ended && e.spares(p, d) {
			d.attach(p)
			d.early = d.NoWait
			e.hurry(now, p, d)
			return true
		}
	}
	return false
}

// shareLong lets an open long pull with want to spare cover d.
func (e *Engine) shareLong(s *share, d *Demand) bool {
	for _, p := range s.pulls {
		if p.ended || (p.kind != oneShot && p.kind != plain) || (p.kind == plain) != (d.Mode == Fill || s.plain) {
			continue
		}
		if e.spares(p, d) && p.sent+p.req.Expires+2*ExpiresMargin >= d.Deadline {
			d.attach(p)
			return true
		}
	}
	return false
}

// spares reports whether p will bring all that d wants beyond what the demands want that it covers. A pull over
// a limit brings nothing but its refusal, which is for the demand that asked.
func (e *Engine) spares(p *pull, d *Demand) bool {
	return p.left-p.need >= d.Want && !p.share.own && !e.isRefusable(&p.req)
}
