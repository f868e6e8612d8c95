package jetpull

import (
	"errors"
	"strconv"

	"github.com/jetpull/jetpull/internal/wire"
)

// outcome is how a pull ended.
type outcome struct {
	filled bool   // all that was asked for came
	status status // the status that ended it; its class is 0 where there was none
	silent bool   // its client deadline passed without a word
	lost   bool   // the connection broke
	fatal  error  // it could not be sent
	unsure bool   // more may arrive for it
}

// end closes p's account: its inbox is used again only where nothing more can
// arrive, and the claims it covered are finished or looked at anew.
func (r *rules) end(now at, p *pull, o outcome) {
	l := p.lane
	l.removePull(p)
	p.inbox.pull = nil
	if o.unsure || leavesDoubt(o.status) {
		r.retire(p)
	} else {
		r.room += p.left
		r.release(p.inbox)
	}
	r.noteOutcome(now, p, o)
	if c := p.owner; c != nil && !c.done {
		r.standingOutcome(now, c, p, o)
	}
	if p.claims == 0 {
		return
	}
	for i := 0; i < len(l.claims); {
		c := l.claims[i]
		if c.pull == p {
			c.detach()
			r.decide(now, c, p, o)
		}
		if !c.done {
			i++
		}
	}
}

// leavesDoubt reports whether data can still arrive after s: the new leader's
// word can come before the last messages of the old one.
func leavesDoubt(s status) bool {
	for _, upheaval := range []error{ErrLeadershipChanged, ErrServerShutdown, ErrConsumerDeleted} {
		if errors.Is(s.is, upheaval) {
			return !s.HasPending
		}
	}
	return false
}

// noteOutcome draws the consequences for the lane, the pin and the consumer.
func (r *rules) noteOutcome(now at, p *pull, o outcome) {
	l, s := p.lane, o.status
	switch {
	case o.silent:
		r.stats.silent++
	case s.class == classRetry, s.class == classTerminal:
		r.backOff(now, l)
		if errors.Is(s.is, ErrNoResponders) && !r.checking && !r.closed {
			r.checking = true
			r.do(action{kind: actCheck})
		}
		if errors.Is(s.is, ErrMaxWaiting) {
			r.wonder(now)
		}
	case s.class == classPin && p.req.ID != "":
		r.pinLost(l.terms.group, p.req.ID)
		r.wonder(now)
	case s.class == classEmpty && p.kind == pullOnce && p.got == 0 && now < p.sent+p.req.Expires/2:
		l.crowded = s.Code == 408
		l.downgraded = !l.crowded
	case tooSoon(now, p, s):
		r.backOff(now, l)
	}
	if errors.Is(s.is, ErrLeadershipChanged) {
		r.pinLost(l.terms.group, r.pins.id(l.terms.group))
	}
}

// backOff lets no pull go out on l for a while.
func (r *rules) backOff(now at, l *lane) {
	l.retryAt = now + r.backoff(l.tries)
	r.schedule(l.retryAt)
	l.tries++
}

// tooSoon reports whether the server ended p with nothing though it was to wait,
// or for an id that it did not send. To pull again at once could go on for ever,
// as fast as the server answers.
func tooSoon(now at, p *pull, s status) bool {
	if p.got > 0 || p.req.MaxBytes > 0 && errors.Is(s.is, ErrMaxBytes) {
		return false
	}
	waited := p.kind != pullQuick && (s.class == classEmpty || s.class == classOver)
	return s.class == classPin || waited && now < p.sent+p.req.Expires/2
}

// decide says what becomes of a claim whose pull has ended.
func (r *rules) decide(now at, c *claim, p *pull, o outcome) {
	s := o.status
	some := c.n > 0 && c.mode == claimOnce
	switch {
	case c.done:
	case o.fatal != nil:
		r.finish(c, o.fatal)
	case o.silent || o.lost:
		r.decideSilent(c, p, o, some)
	case o.filled && p.kind == pullOnce && some:
		r.finish(c, nil)
	case o.filled:
		// What filled the pull went to claims before this one, or there is more
		// than a pull may ask for: look what is there.
		c.long = c.long && c.mode == claimFill
	case r.refusedFor(now, c, p, s):
		c.cause = c.refused.err
		if some {
			r.finish(c, nil)
		}
	case s.class == classConfig, s.class == classTerminal:
		r.finish(c, s.err(r.subject))
	case s.class == classPin:
	case s.class == classRetry:
		c.cause = s.err(r.subject)
		if some {
			r.finish(c, nil)
		}
	case some:
		r.finish(c, nil)
	case errors.Is(s.is, ErrMaxBytes):
		r.finish(c, s.err(r.subject))
	case p.kind != pullQuick:
		if s.expired && c.deadline <= now+expiresMargin+expiresMargin/2 {
			r.finish(c, timeoutError(c.cause))
		}
	case c.noWait:
		r.finish(c, ErrNoMessages)
	default:
		c.long = true
	}
}

// decideSilent handles a pull that ended without a word. A no-wait pull does
// so where the consumer is at MaxAckPending, so the long pull comes next; with
// NoWait it is tried once more, for the answer may just have been lost.
func (r *rules) decideSilent(c *claim, p *pull, o outcome, some bool) {
	c.cause = errSilent
	if o.lost {
		c.cause = errPullLost
	}
	c.tries++
	switch {
	case some:
		r.finish(c, nil)
	case o.lost:
	case p.kind != pullQuick:
	case !c.noWait:
		c.long = true
	case c.tries > 1:
		r.finish(c, timeoutError(errors.Join(c.cause, errAckPendingHint)))
	}
}

var errAckPendingHint = errors.New("the consumer may be at its MaxAckPending")

// newPull makes a pull on ib, with the terms of its lane. The pull lives in its
// inbox, which has one at a time.
func (r *rules) newPull(now at, l *lane, kind pullKind, ib *inbox) *pull {
	r.seq++
	p := &ib.memory
	*p = pull{lane: l, inbox: ib, kind: kind, sent: now, heard: now}
	var room [64]byte
	p.reply = string(strconv.AppendUint(append(room[:0], ib.prefix...), r.seq, 36))
	p.token = p.reply[len(ib.prefix):]
	if ib.single {
		ib.subject, ib.prefix = p.reply, p.reply
	}
	p.req = wire.Request{
		Group: l.terms.group, Priority: l.terms.priority,
		MinPending: l.terms.minPending, MinAckPending: l.terms.minAckPending,
	}
	if r.limits.pinned {
		p.req.ID = r.pins.id(l.terms.group)
	}
	return p
}

// send puts p on the wire and opens its account.
func (r *rules) send(now at, p *pull, batch int) {
	p.req.Batch = batch
	p.left = batch
	r.room -= batch
	switch {
	case p.kind == pullQuick:
		p.deadline = now + r.quickWait()
	case p.req.Heartbeat > 0:
		p.deadline = now + min(2*p.req.Heartbeat+expiresMargin, p.req.Expires+expiryGrace)
	case p.knock:
		p.deadline = now + p.req.Expires + expiresMargin
	case p.probes():
		p.deadline = now + p.owner.stand.patience(p)
	default:
		p.deadline = now + p.req.Expires + expiryGrace
	}
	r.schedule(p.deadline)
	p.inbox.lane, p.inbox.pull = p.lane, p
	p.lane.pulls = append(p.lane.pulls, p)
	r.stats.pulls++
	if !p.inbox.open {
		p.inbox.open = true
		r.do(action{kind: actSubscribe, inbox: p.inbox})
	}
	r.do(action{kind: actPull, pull: p})
}

// pooled takes an idle inbox, or makes one.
func (r *rules) pooled(l *lane) *inbox {
	if n := len(r.idle); n > 0 {
		ib := r.idle[n-1]
		r.idle = r.idle[:n-1]
		return ib
	}
	r.seq++
	prefix := r.base + "." + strconv.FormatUint(r.seq, 36) + "."
	return &inbox{subject: prefix + "*", prefix: prefix, lane: l}
}

// release gives back an inbox on which nothing more can arrive.
func (r *rules) release(ib *inbox) {
	if ib.single || r.closed {
		r.drop(ib)
		return
	}
	if ib.open {
		r.idle = append(r.idle, ib)
	}
}

func (r *rules) drop(ib *inbox) {
	if ib.open && !ib.closed {
		r.do(action{kind: actUnsubscribe, inbox: ib})
	}
	ib.closed = true
}

// retire drains the inbox of p, on which all may still arrive that p was to bring.
func (r *rules) retire(p *pull) {
	ib := p.inbox
	ib.draining, ib.reserved = true, p.left
	ib.reserve(p)
	r.draining++
	r.do(action{kind: actDrain, inbox: ib})
}

// ruleStats count what the rules have seen and done.
type ruleStats struct {
	pulls, messages, bytes, handedBack, dropped, silent uint64
	codes                                               [8]uint64
}

// statusCodes are the codes that are counted, in the order of their counters.
var statusCodes = [...]int{100, 400, 404, 408, 409, 412, 423, 503}

func (s *ruleStats) count(code int) {
	for i, c := range statusCodes {
		if c == code {
			s.codes[i]++
			return
		}
	}
}
