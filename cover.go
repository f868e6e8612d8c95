package jetpull

import "time"

// settle drops the pulls that a lane needs no more and covers what demand is
// not covered.
func (r *rules) settle(now at, l *lane) {
	r.settleLane(now, l)
	r.refill(now)
}

// refill lets the lanes that had no room for a pull have what has become free.
func (r *rules) refill(now at) {
	if !r.short || r.room < 1 {
		return
	}
	r.short = false
	for _, l := range r.lanes {
		r.settleLane(now, l)
	}
}

func (r *rules) settleLane(now at, l *lane) {
	for i := len(l.pulls) - 1; i >= 0; i-- {
		p := l.pulls[i]
		if p.kind != pullQuick && p.claims == 0 && (p.owner == nil || p.owner.done) {
			r.end(now, p, outcome{unsure: true})
		}
	}
	if len(l.claims) == 0 || r.closed {
		l.crowded = false
		return
	}
	if r.down || now < l.retryAt {
		if !r.down {
			// A lane without claims is never due, so one that comes while it
			// backs off has to make it so.
			r.schedule(l.retryAt)
		}
		r.uncarry(l)
		return
	}
	r.coverQuick(now, l)
	for r.coverLong(now, l, claimOnce) || r.coverLong(now, l, claimFill) {
		continue
	}
	for _, c := range l.claims {
		if c.mode == claimStanding {
			r.coverStanding(now, c)
		}
	}
}

// uncarry sends the acknowledgements alone of claims whose pull has to wait.
func (r *rules) uncarry(l *lane) {
	for _, c := range l.claims {
		if c.carrier != nil && c.pull == nil {
			r.do(action{kind: actAck, msg: c.carrier})
			c.carrier = nil
		}
	}
}

// coverQuick sends one no-wait pull for all claims that have not looked yet.
// While one is in flight the claims that come wait and share the next.
func (r *rules) coverQuick(now at, l *lane) {
	inFlight := 0
	for _, p := range l.pulls {
		if p.kind == pullQuick && p.carrier == nil && !p.ended {
			inFlight++
		}
	}
	batch := 0
	var p *pull
	for _, c := range l.claims {
		if c.mode == claimStanding || c.pull != nil || c.long || c.refused != nil {
			continue
		}
		if c.carrier == nil && r.shareQuick(l, c) {
			continue
		}
		if c.carrier != nil {
			r.quickPull(now, c, min(c.want, max(r.room, 1)), c.carrier)
			c.carrier = nil
			continue
		}
		if inFlight >= quickAtOnce || batch > 0 && r.limits.batch > 0 && batch+c.want > r.limits.batch {
			continue
		}
		if p == nil {
			if r.room < 1 {
				r.short = true
				continue
			}
			p = r.newPull(now, l, pullQuick, r.pooled(l))
			p.req.MaxBytes = c.bytesLeft()
		}
		batch += c.want
		c.attach(p)
	}
	if p != nil {
		p.req.NoWait = true
		// Acknowledgements that carry a pull may have taken the last of the room.
		r.send(now, p, max(1, min(batch, r.room)))
	}
}

// quickPull sends a no-wait pull for one claim.
func (r *rules) quickPull(now at, c *claim, batch int, carrier *Msg) {
	p := r.newPull(now, c.lane, pullQuick, r.pooled(c.lane))
	p.carrier = carrier
	p.req.NoWait = true
	p.req.MaxBytes = c.bytesLeft()
	c.attach(p)
	r.send(now, p, batch)
}

func (c *claim) bytesLeft() int {
	if c.maxBytes == 0 {
		return 0
	}
	return max(1, c.maxBytes-c.bytes)
}

// coverLong sends a long pull for the claims of a mode that found nothing, as
// many of them as one pull may serve, and reports whether it did.
func (r *rules) coverLong(now at, l *lane, mode claimMode) bool {
	var p *pull
	batch := 0
	over := false
	var until at
	for _, c := range l.claims {
		if c.mode != mode || !c.long || c.pull != nil || c.refused != nil || r.shareLong(l, c) {
			continue
		}
		want := c.want
		if l.plain() && mode == claimOnce {
			want = 1
		}
		if batch > 0 && r.limits.batch > 0 && batch+want > r.limits.batch {
			continue
		}
		if p == nil {
			if r.room < 1 {
				r.short = true
				return false
			}
			kind := pullOnce
			if mode == claimFill || l.plain() {
				kind = pullPlain
			}
			p = r.newPull(now, l, kind, &inbox{prefix: r.base + ".", single: true, lane: l})
			p.req.MaxBytes = c.bytesLeft()
			over = r.overLimit(now, c)
		}
		if r.overLimit(now, c) != over {
			continue
		}
		batch += want
		until = max(until, c.deadline)
		c.attach(p)
	}
	if p == nil {
		return false
	}
	p.req.NoWait = p.kind == pullOnce
	p.req.Expires = expiresIn(until - now)
	if !over {
		p.req.Expires = r.capExpires(p.req.Expires)
	}
	p.req.Heartbeat = heartbeatFor(l.heartbeat, p.req.Expires)
	r.send(now, p, min(batch, r.waitingRoom()))
	return true
}

// overLimit reports whether c asks for a wait that the consumer refuses. The
// server is to say so, but not to the claims that would share its pull.
func (r *rules) overLimit(now at, c *claim) bool {
	return c.asked && r.limits.expires > 0 && expiresIn(c.deadline-now) > r.limits.expires
}

// waitingRoom is what a pull that may stay open for long can take of the room:
// half, so that calls with other terms are not left without.
func (r *rules) waitingRoom() int { return (r.room + 1) / 2 }

// shareQuick lets a no-wait pull in flight with demand to spare cover c: one
// whose claims were served by other pulls.
func (r *rules) shareQuick(l *lane, c *claim) bool {
	if c.noWait {
		return false // an answer from before the call could miss what it is about
	}
	for _, p := range l.pulls {
		if p.kind == pullQuick && !p.ended && r.spare(p, c) {
			c.attach(p)
			return true
		}
	}
	return false
}

// shareLong lets an open long pull with demand to spare cover c.
func (r *rules) shareLong(l *lane, c *claim) bool {
	for _, p := range l.pulls {
		if p.ended || (p.kind != pullOnce && p.kind != pullPlain) || (p.kind == pullPlain) != (c.mode == claimFill || l.plain()) {
			continue
		}
		if r.spare(p, c) && p.sent+p.req.Expires+2*expiresMargin >= c.deadline {
			c.attach(p)
			return true
		}
	}
	return false
}

// spare reports whether p will bring all that c wants beyond what the claims
// want that it covers. One that asks for more than the consumer allows brings
// nothing but its refusal, which is for the claim that asked.
func (r *rules) spare(p *pull, c *claim) bool {
	refused := r.limits.batch > 0 && p.req.Batch > r.limits.batch || r.limits.expires > 0 && p.req.Expires > r.limits.expires
	return p.left-p.need >= c.want && !p.lane.own && !refused
}

// expiresIn is the expiry of a pull whose caller waits for left.
func expiresIn(left time.Duration) time.Duration {
	if left >= 2*expiresMargin {
		return left - expiresMargin
	}
	// Of a short wait the margin would leave nothing.
	return max(minWait, left-left/10)
}

func (r *rules) capExpires(d time.Duration) time.Duration {
	if r.limits.expires > 0 {
		return min(d, r.limits.expires)
	}
	return d
}

// heartbeatFor is the heartbeat of a pull: what was asked for, or the default
// where the wait is long enough. A request of 1 ns stands for the default
// whatever the wait. The server refuses more than half of the expiry.
func heartbeatFor(asked, expires time.Duration) time.Duration {
	switch {
	case asked == 1:
		return min(defaultHeartbeat, expires/2)
	case asked > 0 && 2*asked <= expires:
		return asked
	case asked == 0 && expires >= heartbeatFrom-expiresMargin:
		return min(defaultHeartbeat, expires/2)
	}
	return 0
}
