package pull

import (
	"strconv"

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

// pull is one open request.
type pull struct {
	share *share
	inbox *Inbox
	kind  kind
	req   wire.Request
	reply string  // where its answers go
	token string  // the end of reply
	since At      // when reply was first used
	owner *Demand // the standing demand it was sent for
	// refresh is set if the pull only refreshes a pin, and is too small for a message.
	refresh bool
	alone   bool // it is for a message that fitted no other

	demands  int // that it covers
	need     int // messages that those still want
	left     int // messages that can still arrive
	got      int
	bytes    int
	sent     At
	brought  At // when it brought the last message
	patience At // how long a no-wait pull may stay silent
	deadline At
	ended    bool        // a status came, and messages that it counts have not
	status   wire.Status // that one
}

// probe reports whether p is the short pull without heartbeats that follows trouble.
func (p *pull) probe() bool { return p.kind == windowed && p.req.Heartbeat == 0 && !p.refresh }

// ending is how a pull ended.
type ending struct {
	filled bool        // all that was asked for came
	status wire.Status // the status that ended it; its Code is 0 if there was none
	silent bool        // its deadline passed without an answer
	lost   bool        // the connection broke
	unsure bool        // more may arrive for it
}

// newPull makes a pull on ib with the terms of its share group. The server caches what it knows of a reply subject, so no-wait pulls
// that follow each other, each filled, have a common one for replyLife. Otherwise a late status could be taken for a later pull's.
func (e *Engine) newPull(now At, s *share, k kind, ib *Inbox) *pull {
	p := &ib.memory
	reply, since := p.reply, p.since
	quiet := p.kind == noWait && p.got > 0 && p.got == p.req.Batch && !p.ended && p.req.MaxBytes == 0
	if k != noWait || !quiet || now > since+replyLife {
		e.seq++
		var buffer [64]byte
		reply, since = string(strconv.AppendUint(append(buffer[:0], ib.Prefix...), e.seq, 36)), now
	}
	*p = pull{share: s, inbox: ib, kind: k, sent: now, reply: reply, since: since, token: reply[len(ib.Prefix):]}
	if ib.single {
		ib.Subject, ib.Prefix = p.reply, p.reply
	}
	p.req = wire.Request{
		Group: s.terms.Group, Priority: s.terms.Priority,
		MinPending: s.terms.MinPending, MinAckPending: s.terms.MinAckPending,
	}
	if e.limits.Pinned {
		p.req.ID = e.pins[s.terms.Group].id
	}
	return p
}

// send sends p and opens its account.
func (e *Engine) send(now At, p *pull, batch int) {
	p.req.Batch, p.left = batch, batch
	e.capacity.free -= batch
	p.deadline = now + p.maxSilence()
	e.schedule(p.deadline)
	p.inbox.share, p.inbox.pull = p.share, p
	p.share.pulls = append(p.share.pulls, p)
	e.stats.Pulls++
	req := p.req
	e.do(Effect{Kind: Send, Inbox: p.inbox, Pull: &req, Reply: p.reply})
}

// arrived accounts for a message that p brought.
func (e *Engine) arrived(now At, p *pull, size int) {
	e.answered(now, p)
	if p.kind == oneShot && !p.ended {
		// The server does not end the pull while it is at MaxAckPending. Messages that have come must not wait for that.
		p.deadline = now + oneShotSilence
		e.schedule(p.deadline)
	}
	p.share.tries, p.share.claimed = 0, false
	p.brought = now
	e.account(p, size)
	if p.req.MaxBytes > 0 && p.bytes >= p.req.MaxBytes {
		// The server drops a pull whose bytes are used up, without a status.
		e.capacity.free += p.left
		p.left = 0
	}
}

// account counts a message of p.
func (e *Engine) account(p *pull, size int) {
	p.got++
	p.bytes += size
	p.left--
	e.capacity.free++
}

// end closes p's account. Its inbox is used again only if nothing more can arrive. The demands that it covered end
// or get another pull.
func (e *Engine) end(now At, p *pull, o ending) {
	s := p.share
	s.pulls = without(s.pulls, p)
	p.inbox.pull = nil
	if o.unsure || leavesOpen(o.status) {
		e.retire(p, o.silent)
	} else {
		e.capacity.free += p.left
		e.release(p.inbox)
	}
	e.noteEnding(now, p, o)
	if d := p.owner; d != nil && !d.Done {
		e.standingEnded(now, d, p, o)
	}
	for i := 0; p.demands > 0 && i < len(s.demands); {
		d := s.demands[i]
		if d.pull == p {
			d.detach()
			e.decide(now, d, p, o)
		}
		if !d.Done {
			i++
		}
	}
}

// leavesOpen reports whether data can still arrive after a status: the status of a new leader can overtake the
// last messages of the old one.
func leavesOpen(st wire.Status) bool {
	switch st.Condition {
	case wire.LeadershipChange, wire.ServerShutdown, wire.ConsumerDeleted:
		return !st.HasPending
	}
	return false
}

// noteEnding updates the share group, the pin and the consumer's configuration.
func (e *Engine) noteEnding(now At, p *pull, o ending) {
	s, st := p.share, o.status
	switch class := st.Condition.Class(); {
	case o.silent:
		e.stats.Silent++
	case class == wire.Retry, class == wire.Terminal:
		e.backOff(now, s)
		if st.Condition == wire.NoResponders {
			e.readConfig()
		}
	case class == wire.Pin && p.req.ID != "":
		e.PinLost(s.terms.Group, p.req.ID)
	case class == wire.Empty && p.kind == oneShot && p.got == 0 && now < p.sent+p.req.Expires/2:
		s.claimed = true
	case st.Condition == wire.LimitExceeded:
		e.backOff(now, s)
		e.readConfig() // the limit was lowered, unless the call asked for more
	case tooSoon(now, p, st):
		e.backOff(now, s)
	}
	if st.Condition == wire.LeadershipChange {
		e.PinLost(s.terms.Group, e.pins[s.terms.Group].id)
	}
}

// tooSoon reports whether the server ended p without messages although p was to wait, or because of an id that it did
// not carry. Pulling again at once could go on for ever, as fast as the server answers.
func tooSoon(now At, p *pull, st wire.Status) bool {
	if p.got > 0 || st.Code == 0 || p.req.MaxBytes > 0 && st.Condition == wire.MaxBytes {
		return false
	}
	class := st.Condition.Class()
	waited := p.kind != noWait && (class == wire.Empty || class == wire.Over)
	return class == wire.Pin || waited && now < p.sent+p.req.Expires/2
}

// decide says how a demand goes on whose pull has ended. The first row that applies decides. "Some" means that the demand
// has messages and need not wait for its whole batch.
//
//	| the pull                                           | the demand                                              |
//	| ---                                                | ---                                                     |
//	| ended without an answer, or was a one-shot; some   | ends                                                    |
//	| was lost, or was a long pull without an answer     | is pulled for again                                     |
//	| was a no-wait pull without an answer               | waits by a long pull: the consumer may be at            |
//	|                                                    | MaxAckPending; with NoWait it is pulled for once more   |
//	| is filled, for demands before this one             | gets a no-wait pull; with Fill, a long one if it had one |
//	| is refused for its terms, or the consumer is gone  | ends with the status                                    |
//	| had an old pin id                                  | is pulled for again                                     |
//	| ended by any other status; some                    | ends                                                    |
//	| cannot be served now                               | is pulled for again, after the back-off                 |
//	| has too few bytes for the next message             | ends with the status                                    |
//	| was a long pull                                    | is pulled for again until its deadline                  |
//	| found nothing                                      | waits by a long pull; with NoWait it ends               |
func (e *Engine) decide(now At, d *Demand, p *pull, o ending) {
	st, class := o.status, o.status.Condition.Class()
	some := d.n > 0 && d.Mode == Some
	switch {
	case o.lost:
		d.cause = ErrLost
	case o.silent && (p.kind != noWait || d.cause == nil):
		d.cause = ErrSilent
	case class == wire.Retry:
		d.cause = &Refused{st}
	}
	d.noHeartbeat = d.noHeartbeat || o.silent && p.kind != noWait || st.Condition == wire.MaxWaiting
	switch {
	case some && (o.silent || o.lost || o.filled && p.kind == oneShot):
		e.finish(d, nil)
	case o.lost, o.silent && p.kind != noWait:
	case o.silent && !d.NoWait:
		d.long = true
	case o.silent:
		if d.tries++; d.tries > 1 {
			e.finish(d, &Timeout{ErrAckPending})
		}
	case o.filled:
		d.long = d.long && d.Mode == Fill
	case class == wire.Config, class == wire.Terminal:
		e.finish(d, &Refused{st})
	case class == wire.Pin:
	case some:
		e.finish(d, nil)
	case class == wire.Retry:
	case st.Condition == wire.MaxBytes:
		e.finish(d, &Refused{st})
	case p.kind != noWait:
		if st.Condition == wire.Expired && d.Deadline <= now+ExpiresMargin+ExpiresMargin/2 {
			e.finish(d, &Timeout{d.cause})
		}
	case d.NoWait:
		e.finish(d, ErrEmpty)
	default:
		d.long = true
	}
}
