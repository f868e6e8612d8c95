package jetpull

import (
	"errors"
	"time"
)

const (
	// shortBeat is the heartbeat of a standing claim's pulls, so that one that the
	// server has dropped without a word is missed within a second.
	shortBeat = 400 * time.Millisecond
	// overlapExpires is how long a pull lives that is sent while enough is on order
	// by others. When no more messages come these soon run out, but for one, and
	// with them their heartbeats. Where messages come they are filled before that.
	overlapExpires = 5 * time.Second
	// probeExpires is the life of the first pull that is sent in doubt.
	probeExpires = 600 * time.Millisecond
	// refreshBytes is what a pull asks for that is only to refresh a pin, or to knock:
	// less than any message has.
	refreshBytes = 1
)

// standingOutcome tells a standing claim what ended one of its pulls.
func (r *rules) standingOutcome(now at, c *claim, p *pull, o outcome) {
	s := o.status
	if s.expired && p.got <= p.req.Batch/2 && !p.knock {
		c.stand.idle = now
	}
	var err error
	switch {
	case o.fatal != nil:
		r.finish(c, o.fatal)
		return
	case o.silent && p.knock:
		return // what it was sent beside has the say
	case o.silent:
		c.stand.doubts(now, p)
		err = errSilent
	case o.lost:
		c.stand.doubts(now, nil)
		err = errPullLost
	case errors.Is(s.is, ErrMaxBytes):
		switch {
		case p.got > 0:
		case c.maxBytes > 0 && p.req.MaxBytes == r.mostBytes(c):
			// The message does not fit the user's limit and never will.
			r.finish(c, s.err(r.subject))
		case p.refresh, p.knock:
		default:
			c.stand.tooSmall(p.req.MaxBytes, r.limits.bytes)
		}
		if !c.done {
			r.reassured(c, false)
		}
		return
	case s.class == classConfig, s.class == classTerminal:
		c.stand.doubts(now, nil)
		err = s.err(r.subject)
		switch {
		case errors.Is(s.is, ErrConsumerDeleted):
			r.mustRead(now, now+r.backoff(0))
		case !r.refusedFor(now, c, p, s):
			r.finish(c, err)
			return
		}
	case s.class == classRetry:
		c.stand.doubts(now, nil)
		err = s.err(r.subject)
	default:
		r.reassured(c, s.expired && p.probes() && now > p.sent+p.req.Expires+r.link+expiresMargin)
		if !p.probes() {
			c.stand.beat -= (c.stand.beat - shortBeat) / 8
		}
		return
	}
	r.do(action{kind: actProblem, claim: c, err: err})
}

// mostBytes is what a pull for c may ask for, where its caller has a limit.
func (r *rules) mostBytes(c *claim) int {
	if r.limits.bytes > 0 {
		return min(c.maxBytes, r.limits.bytes)
	}
	return c.maxBytes
}

// doubts notes that a pull ended in trouble, or that nothing was heard of one.
func (s *standing) doubts(now at, unheard *pull) {
	s.lively = now
	s.silent = unheard != nil
	switch {
	case unheard == nil:
		s.doubt, s.beat = 1, shortBeat
	case s.doubt == 0, unheard.probes():
		s.doubt++
	}
}

// probes reports whether p is one that was sent in doubt.
func (p *pull) probes() bool { return p.kind == pullStream && p.req.Heartbeat == 0 }

// reassured notes that the server deals with the pulls of c. If one was silent
// and the next answered late, and not because the link is long, the server was too
// busy to send heartbeats, and is given more time from now on.
func (r *rules) reassured(c *claim, late bool) {
	s := &c.stand
	if s.doubt == 0 {
		return
	}
	if s.silent && late {
		s.beat = min(2*s.beat, defaultHeartbeat)
	}
	s.doubt = 0
	r.do(action{kind: actCalm, claim: c})
}

// terms fills in how long p lives and how the server is to be missed. In doubt
// it goes without heartbeats and for a short time: the server then says what it
// has against it, such as MaxWaiting, where it would drop one with heartbeats
// without a word. One that overlaps others is short-lived.
func (s *standing) terms(r *rules, p *pull, overlaps bool) {
	expires := r.streamExpiry()
	if s.doubt > 0 {
		p.req.Expires = r.capExpires(min(expires, probeExpires))
		return
	}
	beat := p.lane.heartbeat
	if beat == 0 {
		beat = s.beat
	}
	if overlaps {
		expires = min(expires, max(overlapExpires, 2*beat))
	}
	p.req.Expires = r.capExpires(expires)
	p.req.Heartbeat = min(beat, p.req.Expires/2)
}

// coverStanding keeps a standing claim's window on order. Pulls overlap: a new
// one goes out as soon as half of what may wait for a worker is neither held nor
// on order.
func (r *rules) coverStanding(now at, c *claim) {
	if r.unread || c.refused != nil {
		return
	}
	o, refresh := c.onOrder(now), false
	open := o.messages + o.promised
	s := &c.stand
	if s.doubt > 1 && o.pulls > 0 {
		if o.knocks == 0 && now >= s.lastPull+knockEvery || r.pinFades(now, c) {
			r.knock(now, c)
		}
		return
	}
	if r.limits.pinned && o.promised > 0 && r.pins.id(c.lane.terms.group) == "" {
		return // what was promised brings the pin, and a pull without it would stand by
	}
	need := s.window - s.held - open
	batch, bytes := min(need, r.waitingRoom()), 0
	r.short = r.short || need > 0 && r.room < 1
	if r.limits.batch > 0 {
		batch = min(batch, r.limits.batch)
	}
	enough := o.messages >= r.demandEnough(s.window)
	if !enough && s.lively > s.idle {
		s.idle = 0
	}
	switch {
	case s.oversize:
		if !s.lonely(o) {
			return
		}
		s.oversize, batch = false, 1
	case r.pinFades(now, c):
		batch = max(1, batch)
		if s.byteWindow > 0 {
			bytes = max(refreshBytes, s.share(batch, need, o))
			refresh = bytes == refreshBytes
		}
	case s.doubt > 0 && o.pulls > 0:
		return
	case batch < 1 || r.manyPulls(o) || s.idle > 0 && o.messages > 0 || open+s.held > 0 && need < max(1, (s.window-s.workers+1)/2):
		return
	case s.byteWindow > 0:
		if bytes = s.share(batch, need, o); bytes == 0 {
			return
		}
	}
	if !refresh {
		s.next = 0
	}
	if c.maxBytes > 0 && (bytes == 0 || bytes > c.maxBytes) {
		bytes = c.maxBytes
	}
	if r.limits.bytes > 0 && bytes > 0 {
		bytes = min(bytes, r.limits.bytes)
	}
	p := r.newPull(now, c.lane, pullStream, r.pooled(c.lane))
	p.owner, p.refresh = c, refresh
	p.req.MaxBytes = bytes
	s.terms(r, p, enough)
	s.lastPull = now
	r.send(now, p, batch)
	if s.doubt > 1 {
		r.schedule(now + knockEvery)
	}
}

// demandEnough is how many messages on order are enough for a claim that is idle:
// when fewer are, there is time to order more while those come.
func (r *rules) demandEnough(window int) int {
	if r.limits.batch > 0 {
		window = min(window, r.limits.batch)
	}
	return max(1, window/8)
}

// pullsAtOnce is how many pulls a standing claim has open: a quarter of the
// consumer's MaxWaiting. More than the server queues it drops without a word, for
// they ask for heartbeats, and a claim that counts on them goes without.
func (r *rules) pullsAtOnce() int {
	if r.limits.waiting == 0 {
		return maxPrefetch
	}
	return min(r.limits.waiting, max(2, r.limits.waiting/4))
}

func (r *rules) streamExpiry() time.Duration {
	if r.limits.pinned && r.limits.pinTTL > 0 {
		return min(streamExpires, r.pinRefresh())
	}
	return streamExpires
}

// pinRefresh is how often a pinned client pulls, whatever its demand: only a
// pull refreshes a pin.
func (r *rules) pinRefresh() time.Duration {
	if r.limits.pinTTL == 0 {
		return time.Minute
	}
	return max(r.limits.pinTTL/3, 10*time.Millisecond)
}

// pinFades reports whether c holds a pin that needs a pull to live on.
func (r *rules) pinFades(now at, c *claim) bool {
	return r.limits.pinned && r.pins.id(c.lane.terms.group) != "" && now >= c.stand.lastPull+r.pinRefresh()
}

// took notes that a standing claim's caller has settled n messages.
func (r *rules) took(now at, c *claim, n, bytes int) {
	c.stand.held -= n
	c.stand.heldBytes -= bytes
	if !c.done {
		r.settle(now, c.lane)
	}
}
