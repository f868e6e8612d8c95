package pull

import (
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// kind determines what ends a pull besides a full batch.
type kind uint8

const (
	noWait   kind = iota // no_wait: brings the messages that are available now
	oneShot              // no_wait with expires: waits for a message, then brings those available
	longPull             // waits for the whole batch until it expires
	windowed             // the same for a standing demand
)

// pull is one open request and its account. Its methods change nothing else.
type pull struct {
	// Fixed when the pull is sent.
	share    *share
	inbox    *Inbox
	owner    *Demand // the standing demand for which it was sent; nil: calls
	kind     kind
	req      wire.Request
	sent     At
	patience At   // how long a no-wait pull may stay silent
	refresh  bool // it only refreshes a pin, and is too small for a message
	alone    bool // it is for a message that fits no other pull

	demands int // number of demands that it covers
	need    int // messages that those demands still want
	left    int // messages that can still arrive
	got     int
	bytes   int
	brought At // when it brought the last message

	deadline At
	over     At          // when the server has ended it, at the latest
	ended    bool        // a status has arrived, but not all messages that it counts
	status   wire.Status // that status
	promised At          // until when those messages count as on order
	// silent is set when the pull has missed its deadline, at missedAt. inDoubt means that the server may not have the pull, until
	// a request that began later is answered: see leaving.prove.
	silent, inDoubt bool
	missedAt        At
}

// ending is how a pull ended.
type ending struct {
	filled bool        // the whole batch arrived
	status wire.Status // the status that ended it; its Code is 0 if there was none
	silent bool        // its deadline passed without an answer
	lost   bool        // the connection broke
	unsure bool        // more may arrive for it
}

// leavesOpen reports whether messages can still arrive after the end: the status of a new leader can overtake the last messages of
// the old one.
func (o *ending) leavesOpen() bool {
	switch o.status.Condition {
	case wire.LeadershipChange, wire.ServerShutdown, wire.ConsumerDeleted:
		return !o.status.HasPending
	}
	return o.unsure
}

// probe reports whether p is the short pull without heartbeats that follows trouble.
func (p *pull) probe() bool { return p.kind == windowed && p.req.Heartbeat == 0 && !p.refresh }

// awaited reports whether an answer to p is expected: the server has not ended p, and the answer is not overdue.
func (p *pull) awaited() bool { return !p.ended && !p.silent }

// begin starts p's account and its first deadline.
func (p *pull) begin(now At, batch int) {
	p.sent, p.req.Batch, p.left = now, batch, batch
	p.deadline, p.over = now+p.maxSilence(), now+p.req.Expires+expiryGrace
}

// maxSilence returns how long p may stay silent after it was sent.
func (p *pull) maxSilence() time.Duration {
	switch {
	case p.kind == noWait:
		return p.patience
	case p.req.Heartbeat > 0:
		return min(2*p.req.Heartbeat+ExpiresMargin, p.req.Expires+expiryGrace)
	}
	return p.req.Expires + expiryGrace
}

// hurry shortens the wait for a no-wait pull to half of the time until deadline, that of a call that waits for the pull's end.
func (p *pull) hurry(now, deadline At) {
	p.deadline = min(p.deadline, now+max(leastPatience, (deadline-now)/2))
}

// heard moves the deadline after a frame for p.
func (p *pull) heard(now At) {
	silent := p.silent
	if silent { // the server may have received p just now
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
		// When the bytes of a pull are used up, the server drops it without a status.
		fewer, p.left = p.left, 0
	}
	return fewer + 1
}

// broughtAt records that p has brought a message.
func (p *pull) broughtAt(now At) {
	p.heard(now)
	if p.kind == oneShot && !p.ended {
		// The server does not end the pull while it is at MaxAckPending. Messages that have arrived must not wait for that.
		p.deadline = now + oneShotSilence
	}
	p.brought = now
}

// promise processes a status that ends p. If the status counts the messages that the server has sent, p stays open until they have
// arrived: on R3 the status can overtake them. promise returns how many messages fewer are on order.
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

// miss records that p has missed its deadline. p stays open: its messages can be on a stalled link, or the server pauses without
// heartbeats, as it does with replay policy original.
func (p *pull) miss(now At) {
	p.silent, p.inDoubt, p.missedAt, p.deadline = true, true, now, now+leftMost
}

// answered records, for a pull in doubt, that the consumer's server has answered a request that began after p became silent. So all that
// was sent for p before has arrived, and p's time begins now at the latest. A pull of a standing demand stays open for that time, because
// most of its messages are wanted. answered reports false for the pull of a call, which has continued with another pull.
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

// endedEarly reports whether the server ended p without messages although p should have waited, or because of a pin id that
// p did not carry: see share.pullEnded. Without a back-off, the client could pull for ever, as fast as the server answers.
func (p *pull) endedEarly(now At, st wire.Status) bool {
	if p.got > 0 || st.Code == 0 || p.req.MaxBytes > 0 && st.Condition == wire.MaxBytes {
		return false
	}
	class := st.Condition.Class()
	waited := p.kind != noWait && (class == wire.Empty || class == wire.Over)
	return class == wire.Pin || waited && now < p.sent+p.req.Expires/2
}

// bytesToCome returns how many of p's max_bytes may still arrive. A pull without max_bytes reserves all.
func (p *pull) bytesToCome(all int) int {
	if p.req.MaxBytes == 0 {
		return all
	}
	return max(0, p.req.MaxBytes-p.bytes-int(min(p.status.PendingBytes, int64(p.req.MaxBytes))))
}
