package jetpull

import (
	"errors"
	"time"
)

// Events that concern all pulls at once: the connection, the consumer, Close.

// disconnected stops pulling until the connection is back. A call that has
// messages returns with them: more can be long in coming.
func (r *rules) disconnected() {
	r.down = true
	for _, l := range r.lanes {
		for _, c := range append([]*claim(nil), l.claims...) {
			if c.mode == claimOnce && c.n > 0 {
				r.finish(c, nil)
			}
		}
	}
}

// reconnected ends all pulls: the server may have forgotten them or not, so
// their inboxes are drained, and their claims covered anew.
func (r *rules) reconnected(now at) {
	r.down = false
	for _, l := range r.lanes {
		for len(l.pulls) > 0 {
			r.end(now, l.pulls[0], outcome{lost: true, unsure: true})
		}
		l.retryAt, l.tries = 0, 0
		r.settle(now, l)
	}
	if r.unread {
		r.readAt = now
		r.ask(now)
		return
	}
	// It can have been deleted and made anew meanwhile.
	r.wonder(now)
}

// notSent ends the pull on ib, which a broken connection did not take. Nothing
// says yet that it is broken, so the next pull waits a while.
func (r *rules) notSent(now at, ib *inbox) {
	if p := ib.pull; p != nil {
		r.backOff(now, p.lane)
		r.end(now, p, outcome{lost: true, unsure: true})
		r.settle(now, ib.lane)
	}
}

// sendFailed ends the pull on ib, which can never be sent.
func (r *rules) sendFailed(now at, ib *inbox, err error) {
	if p := ib.pull; p != nil {
		r.end(now, p, outcome{fatal: err})
		r.settle(now, ib.lane)
	}
}

// drained says that nothing more comes on ib.
func (r *rules) drained(now at, ib *inbox) {
	if ib.draining && !ib.closed {
		ib.closed = true
		r.draining--
		r.room += ib.reserved
		if ib.unreserve(ib.bytes) && !ib.owner.done {
			r.settle(now, ib.owner.lane)
		}
		r.refill(now)
	}
	r.forgetLanes()
}

// gone ends all claims: the consumer does not exist.
func (r *rules) gone(now at, err error) {
	r.checking = false
	if err == nil {
		return
	}
	r.mustRead(now, now+r.backoff(0))
	for _, l := range r.lanes {
		for _, c := range append([]*claim(nil), l.claims...) {
			if c.mode == claimStanding {
				// Until its own pulls say otherwise.
				c.stand.doubts(now, nil)
				r.do(action{kind: actProblem, claim: c, err: err})
				continue
			}
			r.finish(c, err)
		}
		r.settle(now, l)
	}
}

// die ends all claims with err, and those that come from now on.
func (r *rules) die(now at, err error) {
	if r.dead == nil {
		r.dead = err
	}
	r.failAll(now, err)
}

// failAll ends all claims with err.
func (r *rules) failAll(now at, err error) {
	for _, l := range r.lanes {
		for len(l.claims) > 0 {
			r.finish(l.claims[0], err)
		}
		r.settle(now, l)
	}
}

// refused ends all claims with err, and all pulls: the server takes none, also of
// those that are still on their way.
func (r *rules) refused(now at, err error) {
	r.failAll(now, err)
	for _, l := range r.lanes {
		for len(l.pulls) > 0 {
			r.end(now, l.pulls[0], outcome{unsure: true})
		}
	}
}

// shut ends all claims and all pulls; what is on the wire goes back.
func (r *rules) shut(now at) {
	r.closed = true
	r.die(now, ErrClosed)
	for _, l := range r.lanes {
		for len(l.pulls) > 0 {
			r.end(now, l.pulls[0], outcome{unsure: true})
		}
		r.stats.dropped += uint64(len(l.stash))
		l.stash = nil
	}
	for _, ib := range r.idle {
		r.drop(ib)
	}
	r.idle = nil
}

// spareLanes is how many lanes are kept for the next calls with their terms.
const spareLanes = 32

// forgetLanes drops the lanes of calls with MaxBytes that are over, and others
// that nobody uses where there are many: a caller may choose terms anew for each
// call.
func (r *rules) forgetLanes() {
	crowded := len(r.lanes) > spareLanes
	kept := r.lanes[:0]
	for _, l := range r.lanes {
		if len(l.claims) > 0 || len(l.pulls) > 0 || len(l.stash) > 0 || !l.own && !crowded {
			kept = append(kept, l)
		}
	}
	clear(r.lanes[len(kept):])
	r.lanes = kept
}

// backoff is the wait before try n+1, jittered by a fifth either way.
func (r *rules) backoff(n int) time.Duration {
	d := firstBackoff
	for range min(n, 8) {
		d = min(2*d, lastBackoff)
	}
	return d + time.Duration((r.jitter()*2-1)*float64(d)/5)
}

var errPullLost = errors.New("the connection was lost while the pull was open")
