package jetpull

import (
	"errors"
	"strconv"
	"time"

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
		r.retire(p.inbox, p.left)
	} else {
		r.room += p.left
		r.release(p.inbox)
	}
	r.noteOutcome(now, p, o)
	if c := p.owner; c != nil && !c.done {
		r.standingOutcome(c, p, o)
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
	switch s.is {
	case ErrLeadershipChanged, ErrServerShutdown, ErrConsumerDeleted:
		return !s.HasPending
	}
	return false
}

// noteOutcome draws the consequences for the lane, the pin and the consumer.
func (r *rules) noteOutcome(now at, p *pull, o outcome) {
	l, s := p.lane, o.status
	switch {
	case o.silent:
		r.stats.silent++
	case s.class == classRetry:
		l.retryAt = now + r.backoff(l.tries)
		r.schedule(l.retryAt)
		l.tries++
		if s.is == ErrNoResponders && !r.checking && !r.closed {
			r.checking = true
			r.do(action{kind: actCheck})
		}
	case s.class == classPin:
		r.pinLost(l.terms.group, p.req.ID)
	case s.class == classEmpty && p.kind == pullOnce && p.got == 0 && now < p.sent+p.req.Expires/2:
		l.crowded = s.Code == 408
		l.downgraded = !l.crowded
	}
	if s.is == ErrLeadershipChanged {
		r.pinLost(l.terms.group, r.pins.id(l.terms.group))
	}
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
	case s.is == ErrMaxBytes:
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
	case s.is == ErrMaxBytes:
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
		if s.is != ErrConsumerDeleted {
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
		if c.mode == claimStanding || c.pull != nil || c.long {
			continue
		}
		if c.carrier == nil && l.shareQuick(c) {
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
		if c.mode != mode || !c.long || c.pull != nil || r.shareLong(l, c) {
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
func (l *lane) shareQuick(c *claim) bool {
	if c.noWait {
		return false // an answer from before the call could miss what it is about
	}
	for _, p := range l.pulls {
		if p.kind == pullQuick && !p.ended && p.spare(c) {
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
		if p.spare(c) && p.sent+p.req.Expires+2*expiresMargin >= c.deadline {
			c.attach(p)
			return true
		}
	}
	return false
}

// spare reports whether p will bring all that c wants beyond what the claims
// want that it covers.
func (p *pull) spare(c *claim) bool { return p.left-p.need >= c.want && !p.lane.own }

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

// retire drains an inbox on which up to reserved messages may still arrive.
func (r *rules) retire(ib *inbox, reserved int) {
	ib.draining, ib.reserved = true, reserved
	r.draining++
	r.do(action{kind: actDrain, inbox: ib})
}

// took notes that a standing claim's caller has settled n messages.
func (r *rules) took(now at, c *claim, n, bytes int) {
	c.stand.held -= n
	c.stand.heldBytes -= bytes
	if !c.done {
		r.settle(now, c.lane)
	}
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
