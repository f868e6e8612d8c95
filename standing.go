package jetpull

import (
	"errors"
	"time"
)

// standingOutcome tells a standing claim what ended one of its pulls.
func (r *rules) standingOutcome(c *claim, p *pull, o outcome) {
	s := o.status
	c.stand.idle = c.stand.idle || s.expired && p.got == 0
	var err error
	switch {
	case o.fatal != nil:
		r.finish(c, o.fatal)
		return
	case o.silent:
		err = errSilent
	case o.lost:
		err = errPullLost
	case errors.Is(s.is, ErrMaxBytes):
		switch {
		case p.got > 0:
		case c.maxBytes > 0 && p.req.MaxBytes == c.maxBytes:
			// The message does not fit the user's limit and never will.
			r.finish(c, s.err(r.subject))
		default:
			c.stand.oversize = true
		}
		return
	case s.class == classConfig, s.class == classTerminal:
		err = s.err(r.subject)
		if !errors.Is(s.is, ErrConsumerDeleted) {
			r.finish(c, err)
			return
		}
	case s.class == classRetry:
		err = s.err(r.subject)
	default:
		return
	}
	r.do(action{kind: actProblem, claim: c, err: err})
}

// coverStanding keeps a standing claim's window on order. Pulls overlap: a new
// one goes out as soon as half of what may wait for a worker is neither held nor
// on order.
func (r *rules) coverStanding(now at, c *claim) {
	pulls, open, openBytes := 0, 0, 0
	for _, p := range c.lane.pulls {
		if p.owner == c {
			pulls++
			open += p.left
			openBytes += max(0, p.req.MaxBytes-p.bytes)
		}
	}
	s := &c.stand
	need := s.window - s.held - open
	batch, bytes := min(need, r.waitingRoom()), 0
	r.short = r.short || need > 0 && r.room < 1
	switch {
	case s.oversize:
		if s.held > 0 || open > 0 {
			return
		}
		s.oversize, batch = false, 1
	case r.pinFades(now, c):
		batch = max(1, batch)
	case batch < 1 || pulls >= r.pullsAtOnce() || s.idle && open > 0 || open+s.held > 0 && need < max(1, (s.window-s.workers+1)/2):
		return
	case s.byteWindow > 0:
		if bytes = s.byteWindow - s.heldBytes - openBytes; bytes < 1 || open > 0 && bytes < s.byteWindow/2 {
			return
		}
	}
	if r.limits.batch > 0 {
		batch = min(batch, r.limits.batch)
	}
	if c.maxBytes > 0 && (bytes == 0 || bytes > c.maxBytes) {
		bytes = c.maxBytes
	}
	if r.limits.bytes > 0 && bytes > 0 {
		bytes = min(bytes, r.limits.bytes)
	}
	p := r.newPull(now, c.lane, pullStream, r.pooled(c.lane))
	p.owner = c
	p.req.MaxBytes = bytes
	p.req.Expires = r.capExpires(r.streamExpiry())
	p.req.Heartbeat = heartbeatFor(min(max(c.lane.heartbeat, 1), p.req.Expires/2), p.req.Expires)
	s.lastPull = now
	r.send(now, p, batch)
}

// pullsAtOnce is how many pulls a standing claim has open: a quarter of the
// consumer's MaxWaiting. More than the server queues it drops without a word, for
// they ask for heartbeats, and a claim that counts on them goes without.
func (r *rules) pullsAtOnce() int {
	if r.limits.waiting == 0 {
		return maxPrefetch
	}
	return max(2, r.limits.waiting/4)
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
