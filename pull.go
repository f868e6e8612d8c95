package jetpull

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/wire"
)

// The rules of the pull engine: events in, actions out. Nothing here reads a
// clock, sends, or waits, so every interleaving can be tested as a table. The
// engine (engine.go) brings the events and carries the actions out in order.
//
// What the rules keep:
//   - A pull has an inbox to itself while it is open, so each message and each
//     status is attributed to its pull exactly.
//   - Demand is covered once: a pull is sent for claims that no open pull
//     covers. Messages go to the claims of a lane in the order the claims came,
//     whichever pull brought them.
//   - Every pull ends: filled, by a status and the messages that it promises,
//     or by its client deadline. What ends without a word has its inbox drained
//     and not used again, so nothing can arrive unaccounted.

const (
	// quickSilence is how long a no-wait pull may stay unanswered before a
	// round trip has been measured, and quickFloor the least after that.
	quickSilence = 2 * time.Second
	quickFloor   = 500 * time.Millisecond
	// quickAtOnce is how many shared no-wait pulls a lane has in flight.
	quickAtOnce = 1
	// expiryGrace is how long after its expiry a pull may still be answered.
	expiryGrace = time.Second
	// streamExpires is how long the pulls of a standing claim live.
	streamExpires = 30 * time.Second
	firstBackoff  = 250 * time.Millisecond
	lastBackoff   = 800 * time.Millisecond
	// inboxSlots is the capacity of the channel that all inboxes of an engine
	// deliver into; statusSlots of it are kept for statuses and for what is
	// still on the wire of drained inboxes. nats.go drops what finds a channel
	// full, and the reader can be away for as long as the scheduler likes, so it
	// holds all that may be on order. Of its 32 kB an idle one has touched one
	// page: the memory of a new channel is not written before it is used.
	inboxSlots  = 4096
	statusSlots = 512
)

// pullKind says what ends a pull besides its batch.
type pullKind uint8

const (
	pullQuick  pullKind = iota // no_wait: what is there now
	pullOnce                   // no_wait with expires: waits for the first, then what is there
	pullPlain                  // waits for the whole batch until it expires
	pullStream                 // the same for a standing claim
)

// pull is one open request.
type pull struct {
	lane  *lane
	inbox *inbox
	kind  pullKind
	req   wire.Request
	reply string // where its answers go
	token string // the end of reply
	owner *claim // the standing claim it was sent for
	// refresh tells that it is only to refresh a pin, and too small for a message.
	refresh bool
	// knock tells that it is only to find out whether the server answers pulls, and
	// too small for a message.
	knock bool
	// carrier is the message whose acknowledgement carries the pull.
	carrier *Msg

	claims   int // claims it covers
	need     int // messages that those still want
	left     int // messages that can still arrive
	got      int
	bytes    int
	sent     at
	heard    at
	deadline at // client deadline
	suspect  at // since when it is overdue; 0: it is not
	ending   status
	ended    bool // a status came, and messages it promised have not
}

// inbox is one subscription. A pooled one serves pull after pull by a wildcard
// and the pull's token; a single one serves one pull and is dropped.
type inbox struct {
	subject string // what is subscribed to
	prefix  string // of the reply subjects; the subject itself for a single one
	single  bool
	lane    *lane // of the pull it served last
	pull    *pull // open on it
	open    bool  // subscribed, as far as the rules have asked
	closed  bool
	// draining is set while what is on the wire still comes in, up to reserved
	// messages.
	draining bool
	reserved int
	byteReserve

	memory pull               // of the pull that is open on it
	sub    *nats.Subscription // the engine's
}

// actionKind is something for the engine to do.
type actionKind uint8

const (
	actSubscribe   actionKind = iota // subscribe inbox
	actPull                          // send pull
	actUnsubscribe                   // drop inbox: nothing more comes
	actDrain                         // unsubscribe inbox and tell when the wire is empty
	actNak                           // hand msg back to the server
	actAck                           // acknowledge msg: its carrier pull could not be sent
	actWake                          // claim is done or has messages
	actProblem                       // tell the standing claim of err
	actCalm                          // tell it that pulling is well again
	actPinned                        // tell of a pin gained
	actUnpinned                      // tell of a pin lost
	actCheck                         // ask whether the consumer still exists, and for its configuration
	actWonder                        // ask for its configuration
	actPing                          // ask whether the connection carries anything
)

type action struct {
	kind  actionKind
	inbox *inbox
	pull  *pull
	claim *claim
	// ready is the claim's own, for actWake and unless it is a standing one: by
	// the time the action is carried out the claim can serve another call.
	ready chan struct{}
	msg   *Msg
	err   error
	pin   PinEvent
}

// rules is the state of the pull engine.
type rules struct {
	limits  limits
	subject string // API subject of pulls, for errors
	base    string // prefix of all reply subjects
	jitter  func() float64

	lanes []*lane
	idle  []*inbox // pooled inboxes without a pull
	draining,
	room int // inboxes that drain; messages that may still be asked for
	// short is set where a pull was not sent, or not for all, for want of room.
	short    bool
	seq      uint64
	trip     time.Duration // smoothed time from a pull to its first answer
	link     time.Duration // how long the last ping took
	down     bool
	dead     error // no claim is taken on any more, for this reason
	closed   bool
	checking bool
	rereading
	pinged  at // when the ping was sent that is not answered; 0: there is none
	pins    pins
	due     at // no deadline is earlier; 0: there is none
	actions []action
	stats   ruleStats
}

func newRules(subject, base string, lim limits, jitter func() float64) *rules {
	return &rules{
		limits: lim, subject: subject, base: base, jitter: jitter,
		room: inboxSlots - statusSlots,
	}
}

func (r *rules) do(a action) {
	if a.kind == actWake && a.claim.mode != claimStanding {
		a.ready = a.claim.ready
	}
	r.actions = append(r.actions, a)
}

// schedule lets tick be due at t.
func (r *rules) schedule(t at) {
	if t > 0 && (r.due == 0 || t < r.due) {
		r.due = t
	}
}

// laneOf finds or makes the lane for terms.
func (r *rules) laneOf(terms groupTerms, heartbeat time.Duration, own bool) *lane {
	terms = terms.lane()
	if !own {
		for _, l := range r.lanes {
			if l.terms == terms && l.heartbeat == heartbeat && !l.own {
				return l
			}
		}
	}
	r.forgetLanes() // so that those of calls that are over do not add up
	l := &lane{terms: terms, heartbeat: heartbeat, own: own}
	r.lanes = append(r.lanes, l)
	return l
}

// post takes a claim on.
func (r *rules) post(now at, c *claim) {
	if r.dead != nil {
		r.finish(c, r.dead)
		return
	}
	l := c.lane
	l.claims = append(l.claims, c)
	r.schedule(c.deadline)
	c.stand.beat, c.stand.lively = shortBeat, now
	r.ask(now)
	if r.unread && c.mode != claimStanding {
		r.wonder(now) // it does not wait for it, but the limits can be others
	}
	r.unstash(c)
	if !c.done && c.n > 0 && c.mode == claimOnce {
		r.finish(c, nil)
	}
	if c.done && c.carrier != nil {
		r.do(action{kind: actAck, msg: c.carrier})
	}
	r.settle(now, l)
}

// leave ends a claim whose caller goes away with err.
func (r *rules) leave(now at, c *claim, err error) {
	if c.done {
		return
	}
	r.finish(c, err)
	r.settle(now, c.lane)
}

// data takes a message that arrived on ib. It reports the claim it went to.
func (r *rules) data(now at, ib *inbox, m *Msg, size int, pinID string) {
	r.stats.messages++
	r.stats.bytes += uint64(size)
	l, p := ib.lane, ib.pull
	if l == nil {
		// It answers no pull: none was ever sent from here.
		r.do(action{kind: actNak, msg: m})
		return
	}
	m.lane = l
	if pinID != "" {
		r.pinGained(l.terms.group, pinID)
	}
	var owner *claim
	if p != nil {
		owner = p.owner
	}
	c := l.next(owner)
	steady := r.steady(l, c, p)
	if p != nil {
		r.arrived(now, p, size)
	} else if ib.reserved > 0 {
		ib.reserved--
		r.room++
		ib.unreserve(size)
	}
	if c != nil {
		r.deliver(c, m, size)
	} else if to := r.late(l, m); to != l {
		r.settle(now, to)
	}
	if owner != nil && owner.stand.doubt > 0 {
		// After the message: that it came says more.
		r.reassured(owner, false)
	}
	if p != nil && p.left == 0 {
		// That its bytes are used up is our own count.
		r.end(now, p, outcome{filled: !p.ended, status: p.ending, unsure: p.got < p.req.Batch && !p.ended})
		steady = false
	}
	if !steady {
		r.settle(now, l)
	}
}

// steady reports whether a message of p that goes to c changes nothing about what
// is to be pulled: c has it on order, and holds it from now on.
func (r *rules) steady(l *lane, c *claim, p *pull) bool {
	return p != nil && c != nil && c == p.owner && len(l.claims) == 1 && c.stand.idle == 0 && c.stand.doubt == 0 && !r.short
}

func (r *rules) arrived(now at, p *pull, size int) {
	r.answered(now, p)
	if p.kind == pullOnce && !p.ended {
		// The server does not end it while it is at MaxAckPending, and what it
		// has brought must not wait for that.
		p.deadline = now + r.quickWait()
		r.schedule(p.deadline)
	}
	p.got++
	p.bytes += size
	p.lane.tries, p.lane.crowded = 0, false
	if c := p.owner; c != nil {
		c.stand.lively = now
	}
	p.left--
	r.room++
	if p.req.MaxBytes > 0 && p.bytes >= p.req.MaxBytes {
		// The server drops a pull whose bytes are used up without a word.
		r.room += p.left
		p.left = 0
	}
}

// answered notes that the server has dealt with p.
func (r *rules) answered(now at, p *pull) {
	if p.heard == p.sent && p.kind == pullQuick {
		sample := now - p.sent
		if r.trip == 0 {
			r.trip = sample
		}
		r.trip += (sample - r.trip) / 8
	}
	p.heard, p.suspect = now, 0
	switch {
	case p.ended, p.kind == pullOnce && p.got > 0:
	case p.kind == pullQuick:
		p.deadline = now + r.quickWait()
	case p.req.Heartbeat > 0:
		p.deadline = min(now+2*p.req.Heartbeat+expiresMargin, p.sent+p.req.Expires+expiryGrace)
	}
	r.schedule(p.deadline)
}

func (r *rules) quickWait() time.Duration {
	if r.trip == 0 {
		return quickSilence
	}
	return min(quickSilence, max(quickFloor, 4*r.trip))
}

// deliver hands m to c.
func (r *rules) deliver(c *claim, m *Msg, size int) {
	c.hand(m, size)
	if c.mode == claimStanding {
		if !c.stand.woken {
			c.stand.woken = true
			r.do(action{kind: actWake, claim: c})
		}
		return
	}
	switch {
	case c.want == 0 || c.maxBytes > 0 && c.bytes >= c.maxBytes:
		r.finish(c, nil)
	case c.mode == claimOnce && !c.batchEnds():
		// Nothing would tell it that no more comes: it looks what else is there.
		c.detach()
		c.long = false
	}
}

// late gives back a message that nobody waits for any more, or finds it another
// claim. It reports the lane that it was left to.
func (r *rules) late(l *lane, m *Msg) *lane {
	// A lane can end with its call, so what is left goes to the one that the next
	// call finds.
	if shared := r.laneOf(l.terms, l.heartbeat, false); shared != l {
		l = shared
		if c := l.next(nil); c != nil {
			r.deliver(c, m, m.size())
			return l
		}
	}
	switch {
	case !r.limits.ackNone:
		r.stats.handedBack++
		r.do(action{kind: actNak, msg: m})
	case r.closed:
		r.stats.dropped++
	default:
		l.stash = append(l.stash, m)
	}
	return l
}

// keep takes back a message that a standing claim had and has no use for.
func (r *rules) keep(now at, m *Msg) {
	l := r.laneOf(m.lane.terms, m.lane.heartbeat, false)
	if c := l.next(nil); c != nil {
		r.deliver(c, m, m.size())
	} else {
		r.late(l, m)
	}
	r.settle(now, l)
}

// status takes a status frame that arrived on ib for the pull with token.
func (r *rules) status(now at, ib *inbox, token string, s status) {
	r.stats.count(s.Code)
	p := ib.pull
	if p == nil || p.token != token || p.ended {
		return
	}
	r.answered(now, p)
	r.overtook(now, p)
	if s.class == classAlive {
		if p.owner != nil {
			r.reassured(p.owner, false)
		}
		return
	}
	l := p.lane
	if s.HasPending && s.PendingMsgs <= int64(p.req.Batch) {
		// On R3 a status can overtake the messages before it: wait for them.
		left := max(0, p.req.Batch-int(s.PendingMsgs)-p.got)
		r.room += p.left - left
		p.left = left
		if left > 0 {
			p.ended, p.ending, p.deadline = true, s, now+promiseGrace
			r.schedule(p.expected())
			r.settle(now, l)
			return
		}
	}
	r.end(now, p, outcome{status: s})
	r.settle(now, l)
}

// tick acts on the deadlines that have passed.
func (r *rules) tick(now at) {
	r.ask(now)
	for _, l := range r.lanes {
		for i := len(l.pulls) - 1; i >= 0; i-- {
			if p := l.pulls[i]; p.deadline <= now && !r.suspects(now, p) {
				r.end(now, p, outcome{silent: !p.ended, status: p.ending, unsure: true})
			}
		}
		for _, c := range append([]*claim(nil), l.claims...) {
			if c.deadline > 0 && c.deadline <= now {
				r.finish(c, timeoutError(c.cause))
			}
		}
		r.settle(now, l)
	}
	r.forgetLanes()
}

// next finds when tick is due after the one at now. What is overdue all the same
// waits for something else, such as the connection, and would only make the
// reader spin.
func (r *rules) next(now at) {
	r.due = 0
	later := func(t at) {
		if t > now {
			r.schedule(t)
		}
	}
	if r.asks() {
		later(r.readAt)
	}
	for _, l := range r.lanes {
		for _, p := range l.pulls {
			r.schedule(p.deadline)
			if p.ended {
				later(p.expected())
			}
		}
		uncovered := false
		for _, c := range l.claims {
			r.schedule(c.deadline)
			uncovered = uncovered || c.pull == nil
			if c.mode == claimStanding && r.limits.pinned && r.pins.id(l.terms.group) != "" {
				later(c.stand.lastPull + r.pinRefresh())
			}
			if c.mode == claimStanding && c.stand.doubt > 1 {
				later(c.stand.lastPull + knockEvery)
			}
		}
		if uncovered && !r.down {
			later(l.retryAt)
		}
	}
}

// reading reports whether something can still arrive.
func (r *rules) reading() bool {
	if r.draining > 0 {
		return true
	}
	for _, l := range r.lanes {
		if len(l.pulls) > 0 || len(l.claims) > 0 {
			return true
		}
	}
	return false
}
