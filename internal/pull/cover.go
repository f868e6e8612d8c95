package pull

import "strconv"

// cover drops the pulls that a share group no longer needs and sends pulls for the demands that no open pull covers, as planCall and planStanding
// decide. Share groups that found no free slots are covered too, when some have become free.
func (e *Engine) cover(now At, s *share) {
	e.coverShare(now, s)
	e.refill(now)
}

// refill covers the share groups that found no free slots, when some have become free.
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
	e.dropUnneeded(now, s)
	if len(s.demands) == 0 || e.closed {
		s.claimed = false
		return
	}
	if e.down || now < s.retryAt {
		return
	}
	v := view{limits: &e.limits, room: &e.capacity, trip: e.leaving.trip, pinned: e.limits.Pinned && e.PinID(s.terms.Group) != ""}
	for _, first := range [...]bool{true, false} { // calls that have not looked go first: their pull is short
		for _, d := range s.demands {
			if d.pull == nil && first == d.looks() { // otherwise a pull covers it
				e.coverDemand(now, d, &v)
			}
		}
	}
}

// coverDemand carries out the policy's decision for d, which no pull covers.
func (e *Engine) coverDemand(now At, d *Demand, v *view) {
	if e.capacity.free < e.capacity.slots/16 && !e.limits.Replay || e.capacity.free < 1 {
		e.dropSilent(now)
	}
	var o order
	if d.Mode == Standing {
		d.stand.pace.note(now, d.n, v.trip)
		o = planStanding(now, d, v)
	} else {
		o = planCall(d, v)
	}
	switch o.step {
	case joins:
		d.attach(o.open)
	case hurries:
		o.open.hurry(now, d.Deadline)
	case waitsSlots:
		e.capacity.awaited = true
	case pulls:
		e.send(now, d, &o)
	}
}

// send sends the pull that o orders for d.
func (e *Engine) send(now At, d *Demand, o *order) {
	s := d.share
	e.seq += 2 // an inbox and a reply subject
	var ib *Inbox
	if n := len(e.unused); o.kind == oneShot || o.kind == longPull {
		ib = &Inbox{Prefix: e.base + ".", single: true}
	} else if n > 0 {
		ib, e.unused = e.unused[n-1], e.unused[:n-1]
	} else {
		prefix := e.base + "." + strconv.FormatUint(e.seq-1, 36) + "."
		ib = &Inbox{Subject: prefix + "*", Prefix: prefix}
	}
	p := ib.serve(now, s, o.kind, e.seq)
	if e.limits.Pinned {
		p.req.ID = e.PinID(s.terms.Group)
	}
	batch := o.batch
	if d.Mode == Standing {
		d.stand.ask(now, p, d, o, &e.limits)
	} else {
		batch = min(batch, s.gather(now, p, d, &e.limits))
	}
	p.begin(now, batch)
	e.capacity.free -= p.left
	s.pulls = append(s.pulls, p)
	e.stats.Pulls++
	req := p.req
	e.out.do(Effect{Kind: Send, Inbox: ib, Pull: &req, Reply: ib.reply})
}

// dropUnneeded gives up the pulls that nobody waits for. With ack policy none, a pull stays open until it expires, because messages to a dropped
// inbox are lost.
func (e *Engine) dropUnneeded(now At, s *share) {
	for i := len(s.pulls) - 1; i >= 0 && !e.limits.AckNone; i-- {
		p := s.pulls[i]
		switch {
		case p.kind == noWait, p.demands > 0, p.owner == nil && p.silent, p.owner != nil && !p.owner.Done:
		case p.owner == nil && e.limits.Replay:
			p.silent, p.deadline = true, now+leftMost // the server may have chosen it for the message after its pause
		default:
			e.end(now, p, ending{unsure: true})
		}
	}
}

// dropSilent gives up silent pulls that the server probably has lost, the newest first, until a quarter of the slots is free.
func (e *Engine) dropSilent(now At) {
	free := e.capacity.free + e.leaving.reserved()
	for _, s := range e.shares {
		for i := len(s.pulls) - 1; i >= 0 && free < max(1, e.capacity.slots/4); i-- {
			if p := s.pulls[i]; p.silent && !p.inDoubt {
				free += p.left
				e.giveUp(now, p, true)
			}
		}
	}
}

// gather makes p the pull of first and of the calls like it that no pull covers, and returns how many messages they want. A no-wait pull is for calls
// that have not looked, and a long pull for calls that found nothing. The long pull of a NoWait call is brief: its no-wait pull was not answered, and
// at MaxAckPending the server answers only when the pull expires.
func (s *share) gather(now At, p *pull, first *Demand, limits *Limits) (batch int) {
	shortest, longest, heartbeat := first.Deadline, first.Deadline, true
	for _, d := range s.demands {
		want := d.Want
		if p.kind != noWait && d.Mode == Some && s.claimed {
			want = 1
		}
		like := d.Mode != Standing && d.pull == nil && d.long == first.long && (!d.long || d.Mode == first.Mode && d.NoWait == first.NoWait)
		if !like || batch > 0 && limits.batch(batch+want) < batch+want {
			continue
		}
		batch += want
		shortest, longest, heartbeat = min(shortest, d.Deadline), max(longest, d.Deadline), heartbeat && !d.noHeartbeat
		d.attach(p)
	}
	p.req.MaxBytes, p.req.NoWait = first.bytesLeft(), p.kind != longPull
	if p.kind == noWait {
		p.patience = min(quickSilence, (shortest-now)/2)
		return batch
	}
	p.req.Expires = expiresIn(longest - now)
	if first.NoWait {
		p.req.Expires = min(p.req.Expires, briefExpires)
	}
	if !s.unshared || !first.Chosen { // a wait that the user chose is sent even if the server refuses it
		p.req.Expires = limits.expires(p.req.Expires)
	}
	if heartbeat {
		p.req.Heartbeat = callHeartbeat(s.terms.Heartbeat, p.req.Expires)
	}
	return batch
}

// ask makes p the pull that o orders for a standing demand.
func (s *standing) ask(now At, p *pull, d *Demand, o *order, limits *Limits) {
	p.owner, p.refresh = d, o.refresh
	p.req.MaxBytes, p.req.Expires = o.bytes, limits.standing()
	if o.refresh {
		p.req.MaxBytes = refreshBytes
	} else {
		p.alone, s.oversize = s.oversize, false
	}
	switch beat := d.Terms.Heartbeat; {
	case s.probing:
		p.req.Expires = min(p.req.Expires, probeExpires)
	case beat > 0:
		p.req.Heartbeat = min(beat, p.req.Expires/2)
	default:
		p.req.Expires = inStep(now, p.req.Expires)
		p.req.Heartbeat = min(StandingHeartbeat, p.req.Expires/2)
	}
	s.lastPull = now
}
