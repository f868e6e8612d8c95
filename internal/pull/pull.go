package pull

import (
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// kind says what ends a pull besides its batch.
type kind uint8

const (
	noWait   kind = iota // no_wait: what is there now
	oneShot              // no_wait with expires: waits for the first, then what is there
	longPull             // waits for the whole batch until it expires
	windowed             // the same for a standing demand
)

// pull is one open request and its account. Its methods change nothing else.
type pull struct {
	// Fixed when it is sent.
	share    *share
	inbox    *Inbox
	owner    *Demand // the standing demand it was sent for
	kind     kind
	req      wire.Request
	sent     At
	patience At   // how long a no-wait pull may stay silent
	refresh  bool // it only refreshes a pin, and is too small for a message
	alone    bool // it is for a message that fitted no other

	demands int // that it covers
	need    int // messages that those still want
	left    int // messages that can still arrive
	got     int
	bytes   int
	brought At // when it brought the last message

	deadline At
	over     At          // when the server has ended it, at the latest
	ended    bool        // a status came, and messages that it counts have not
	status   wire.Status // that one
	promised At          // until when they count as on order
	// silent is set since p has missed its deadline, at missedAt. It is in doubt whether the server has p, until a request that
	// began later is answered: see leaving.prove.
	silent, inDoubt bool
	missedAt        At
}

// ending is how a pull ended.
type ending struct {
	filled bool        // all that was asked for came
	status wire.Status // the status that ended it; its Code is 0 if there was none
	silent bool        // its deadline passed without an answer
	lost   bool        // the connection broke
	unsure bool        // more may arrive for it
}

// leavesOpen reports whether data can still arrive after the end: the status of a new leader can overtake the last messages of the
// old one.
func (o *ending) leavesOpen() bool {
	switch o.status.Condition {
	case wire.LeadershipChange, wire.ServerShutdown, wire.ConsumerDeleted:
		return !o.status.HasPending
	}
	return o.unsure
}

// probe reports whether p is the short pull without heartbeats that follows trouble.
func (p *pull) probe() bool { return p.kind == windowed && p.req.Heartbeat == 0 && !p.refresh }

// awaited reports whether the server is to answer p: it has not ended it, and its answer is not overdue.
func (p *pull) awaited() bool { return !p.ended && !p.silent }

// begin starts p's account and its first deadline.
func (p *pull) begin(now At, batch int) {
	p.sent, p.req.Batch, p.left = now, batch, batch
	p.deadline, p.over = now+p.maxSilence(), now+p.req.Expires+expiryGrace
}

// maxSilence is how long p may stay silent after it was sent.
func (p *pull) maxSilence() time.Duration {
	switch {
	case p.kind == noWait:
		return p.patience
	case p.req.Heartbeat > 0:
		return min(2*p.req.Heartbeat+ExpiresMargin, p.req.Expires+expiryGrace)
	}
	return p.req.Expires + expiryGrace
}

// hurry shortens the wait for a no-wait pull to half of what a call has left that waits for its turn.
func (p *pull) hurry(now, deadline At) {
	p.deadline = min(p.deadline, now+max(leastPatience, (deadline-now)/2))
}

// heard moves the deadline when a frame has come for p.
func (p *pull) heard(now At) {
	silent := p.silent
	if silent { // the server may have got it just now
		p.silent, p.inDoubt, p.over = false, false, now+p.req.Expires+expiryGrace
	}
	switch {
	case p.ended, p.kind == oneShot && p.got > 0 && !silent:
	case p.kind == noWait:
		p.deadline = now + p.maxSilence()
	case p.req.Heartbeat > 0:
		p.deadline = min(now+p.maxSilence(), p.over)
	default:
		p.deadline = p.over
	}
}

// took accounts for a message, and returns how many messages fewer are on order.
func (p *pull) took(size int) (fewer int) {
	p.got++
	p.bytes += size
	p.left--
	if p.req.MaxBytes > 0 && p.bytes >= p.req.MaxBytes {
		// The server drops a pull whose bytes are used up, without a status.
		fewer, p.left = p.left, 0
	}
	return fewer + 1
}

// broughtAt notes that p has brought a message.
func (p *pull) broughtAt(now At) {
	p.heard(now)
	if p.kind == oneShot && !p.ended {
		// The server does not end the pull while it is at MaxAckPending. Messages that have come must not wait for that.
		p.deadline = now + oneShotSilence
	}
	p.brought = now
}

// promise takes a status that ends p and counts the messages that the server has sent for it, or does not. On R3 it can overtake
// them. It returns how many messages fewer are on order.
func (p *pull) promise(now At, st wire.Status, replay bool) (fewer int) {
	if !st.HasPending || st.PendingMsgs > int64(p.req.Batch) {
		return 0
	}
	left := max(0, p.req.Batch-int(st.PendingMsgs)-p.got)
	fewer, p.left = p.left-left, left
	if left > 0 {
		p.ended, p.status, p.promised, p.deadline = true, st, now+promiseHold, now+promiseGrace
		if replay { // the server has chosen p for the message after its pause
			p.deadline = now + leftMost
		}
	}
	return fewer
}

// miss notes that p has missed its deadline. It stays open: its messages can be on a link that is stalled, or the server pauses, as
// it does by replay policy original, without heartbeats.
func (p *pull) miss(now At) {
	p.silent, p.inDoubt, p.missedAt, p.deadline = true, true, now, now+leftMost
}

// answered notes, for a pull in doubt, that the consumer's server has answered a request that began after p became silent: all that was
// sent for p before has arrived, and its time begins now at the latest. A pull of a standing demand stays open for that time: most of its
// messages are wanted. It reports false for the pull of a call, which has gone on to another.
func (p *pull) answered(now At, replay bool) (stays bool) {
	switch {
	case replay:
		p.deadline = now + leftMost
	case p.owner != nil:
		p.deadline = now + p.req.Expires + expiryGrace
	default:
		return false
	}
	p.inDoubt = false
	return true
}

// endedEarly reports whether the server ended p without messages although p was to wait, or because of an id that it did
// not carry: see share.pullEnded. Pulling again at once could go on for ever, as fast as the server answers.
func (p *pull) endedEarly(now At, st wire.Status) bool {
	if p.got > 0 || st.Code == 0 || p.req.MaxBytes > 0 && st.Condition == wire.MaxBytes {
		return false
	}
	class := st.Condition.Class()
	waited := p.kind != noWait && (class == wire.Empty || class == wire.Over)
	return class == wire.Pin || waited && now < p.sent+p.req.Expires/2
}

// bytesToCome is how many of the bytes that p asked for may still come. A pull without a bound reserves all.
func (p *pull) bytesToCome(all int) int {
	if p.req.MaxBytes == 0 {
		return all
	}
	return max(0, p.req.MaxBytes-p.bytes-int(min(p.status.PendingBytes, int64(p.req.MaxBytes))))
}
