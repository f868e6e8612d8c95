package jetpull

import "time"

// In doubt a standing claim has one pull open, a probe. A server can be slow to
// answer it, so one probe after another is waited for longer; and it can be lost,
// while the server answers again. A knock tells which: a pull that goes out beside
// the probe, when that has had its time, and can bring no message, so that it takes
// nothing of the window. The server takes pulls in the order in which they come: one
// that answers the knock and has not answered the probe has lost it.

// knockEvery is how long after the last pull the next knock follows, and how long
// it is waited for.
const knockEvery = probeExpires + expiresMargin

// patience is how long the probe p may stay unanswered.
func (s *standing) patience(p *pull) time.Duration {
	return (p.req.Expires + p.req.Expires/2) << min(max(s.doubt-1, 0), 3)
}

// knock asks for a sign of life from whoever answers c's pulls.
func (r *rules) knock(now at, c *claim) {
	p := r.newPull(now, c.lane, pullStream, r.pooled(c.lane))
	p.owner, p.knock = c, true
	p.req.MaxBytes = refreshBytes
	p.req.Expires = r.capExpires(probeExpires)
	c.stand.lastPull = now
	r.send(now, p, 1)
}

// overtook gives up the probes that were to be answered before p, which the server
// has just answered.
func (r *rules) overtook(now at, p *pull) {
	if p.owner == nil || !p.knock {
		return
	}
	l := p.lane
	for i := len(l.pulls) - 1; i >= 0; i-- {
		q := l.pulls[i]
		if q.owner == p.owner && q.probes() && !q.knock && !q.ended && q.got == 0 && q.sent+q.req.Expires <= p.sent {
			r.end(now, q, outcome{silent: true, unsure: true})
		}
	}
}
