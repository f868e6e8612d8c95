package jetpull

import (
	"errors"
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// The consumer's configuration can change under a Subscription. It is read again
// where something depends on it, and where something happens that it may explain;
// never by the clock alone.

// limits are what the consumer's configuration allows.
type limits struct {
	batch   int           // MaxRequestBatch, 0: none
	expires time.Duration // MaxRequestExpires, 0: none
	bytes   int           // MaxRequestMaxBytes, 0: none
	waiting int           // MaxWaiting, 0: not known
	ackNone bool
	pinned  bool
	pinTTL  time.Duration
}

// rereading is what the rules know of readings under way.
type rereading struct {
	// unread is set while standing claims wait for the configuration to be read,
	// readAt when it is asked for next, and reads how often it has been.
	unread bool
	readAt at
	reads  int
	// needs counts how often that came about: a reading that was sent before says
	// nothing of what is there now.
	needs uint64
	// wondering is set while it is read without need, which is not done again
	// before wonderAt.
	wondering bool
	wonderAt  at
}

// wonderEvery bounds how often the configuration is read without need.
const wonderEvery = 10 * time.Second

// refusal is a pull that was over a limit of the consumer.
type refusal struct {
	req wire.Request
	err error
}

// wonder has the configuration read because something happened that a change of
// it explains. Nothing waits for the answer.
func (r *rules) wonder(now at) {
	if r.wondering || r.closed || r.dead != nil || now < r.wonderAt {
		return
	}
	r.wondering, r.wonderAt = true, now+wonderEvery
	r.do(action{kind: actWonder})
}

// wondered says that a reading which nothing waited for is over.
func (r *rules) wondered() { r.wondering = false }

// mustRead lets no standing claim pull before the configuration has been read: the
// consumer was gone and can be another one, or it refuses what it allowed. A reading
// can stay unanswered while the consumer has no leader, so the next one does not
// wait for it.
func (r *rules) mustRead(now, from at) {
	r.needs++
	if !r.unread {
		r.unread, r.reads, r.readAt = true, 0, from
	}
	r.ask(now)
}

// ask sends a reading if one is due and somebody waits for it.
func (r *rules) ask(now at) {
	if !r.asks() {
		return
	}
	if now >= r.readAt {
		r.readAt = now + r.backoff(r.reads)
		r.reads++
		r.checking = true
		r.do(action{kind: actCheck})
	}
	r.schedule(r.readAt)
}

// asks reports whether a claim waits for a reading.
func (r *rules) asks() bool {
	if !r.unread || r.down || r.closed {
		return false
	}
	for _, l := range r.lanes {
		for _, c := range l.claims {
			if c.mode == claimStanding || c.refused != nil {
				return true
			}
		}
	}
	return false
}

// found takes what the configuration says. needs is how many there were when it was
// asked for.
func (r *rules) found(now at, lim limits, needs uint64) {
	r.checking = false
	if needs != r.needs {
		return
	}
	r.unread = false
	if r.limits.ackNone && !lim.ackNone {
		// What was kept came from a consumer that is gone; this one delivers it.
		for _, l := range r.lanes {
			r.stats.dropped += uint64(len(l.stash))
			l.stash = nil
		}
	}
	r.limits = lim
	for _, l := range r.lanes {
		for _, c := range append([]*claim(nil), l.claims...) {
			if c.refused == nil {
				continue
			}
			if !r.explains(now, c, c.refused) {
				r.finish(c, c.refused.err)
			}
			c.refused = nil
		}
		r.settle(now, l)
	}
}

// refusedFor takes in that c's pull was over a limit, and reports whether c waits for
// the reading: not where its caller chose what was asked for.
func (r *rules) refusedFor(now at, c *claim, p *pull, s status) bool {
	ours := c.mode == claimStanding || p.req.Batch > c.want || p.req.Expires > 0 && !c.asked
	if !errors.Is(s.is, ErrLimitExceeded) || r.closed || r.dead != nil {
		return false
	}
	if !ours {
		r.wonder(now)
		return false
	}
	c.refused = &refusal{p.req, s.err(r.subject)}
	r.mustRead(now, now)
	return true
}

// explains reports whether the limits, as they are now, are why a pull for c was
// refused, and c can do with less.
func (r *rules) explains(now at, c *claim, f *refusal) bool {
	l := &r.limits
	if c.mode != claimStanding && (l.batch > 0 && c.want > l.batch || l.bytes > 0 && c.maxBytes > l.bytes || r.overLimit(now, c)) {
		return false
	}
	return l.batch > 0 && f.req.Batch > l.batch ||
		l.expires > 0 && f.req.Expires > l.expires ||
		l.bytes > 0 && f.req.MaxBytes > l.bytes
}
