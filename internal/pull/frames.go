package pull

import "github.com/jetpull/jetpull/internal/wire"

// Message takes a message that arrived on ib. size is its size as the server counts it against max_bytes; pin is the
// pin id that came with it, or "". The first row that applies decides where the message goes:
//
//	| state                                        | the message goes to                                      |
//	| ---                                          | ---                                                      |
//	| ib was dropped                               | the server, by a NAK                                     |
//	| its share group has a call that wants more   | the one that was posted first                            |
//	| its share group has standing demands         | the one whose pull brought it, or else any               |
//	| other calls have its terms                   | the one that was posted first                            |
//	| explicit acknowledgements                    | the server, by a NAK                                     |
//	| ack policy none                              | the next call with its terms; after Close it is dropped  |
//
// Then its pull ends if that was its last message, and a new pull is sent if one is needed.
func (e *Engine) Message(now At, ib *Inbox, m Message, size int, pin string) {
	e.stats.Messages++
	e.stats.Bytes += uint64(size)
	s, p := ib.memory.share, ib.pull
	if s == nil { // ib stands for a dropped inbox
		e.handBack(m)
		return
	}
	if p != nil && e.steady(now, p, size, pin) { // a shortcut with the same result as the rest
		e.capacity.free += p.took(size)
		p.owner.add(m, size)
		e.out.deliver(p.owner)
		return
	}
	e.at(now)
	gained := e.pins.isNew(s.terms.Group, pin)
	if gained {
		e.gainPin(now, s.terms.Group, pin, p)
	}
	var owner *Demand
	if p != nil {
		owner = p.owner
		s.tries, s.claimed = 0, false
		p.broughtAt(now)
		e.capacity.free += p.took(size)
		if owner != nil && !owner.Done {
			e.report(owner, news{healthy: true})
		}
	}
	to, d := s, s.next(owner)
	if d == nil {
		to = e.shareOf(s.terms, false) // an unshared group ends with its call
		d = to.next(nil)
	}
	if ib.number > 0 {
		e.capacity.free += e.leaving.arrived(now, ib, d != nil) // before m is handed back: ib may drain
	}
	if d != nil {
		e.deliver(d, m, size)
	} else {
		e.late(to, m, size)
	}
	if p != nil && p.left == 0 {
		e.end(now, p, ending{filled: !p.ended, status: p.status, unsure: p.got < p.req.Batch && !p.ended})
	}
	for _, o := range e.shares {
		if gained || o == s || o == to {
			e.cover(now, o)
		}
	}
}

// steady reports whether a message of p changes only accounts. It is neither the first of a batch nor the last of p, p's
// standing demand is the only demand of its share group and has no trouble, and no pull waits for the slot that it frees.
func (e *Engine) steady(now At, p *pull, size int, pin string) bool {
	d, s := p.owner, p.share
	return p.brought == now && p.left > 1 && p.awaited() && (p.req.MaxBytes == 0 || p.bytes+size < p.req.MaxBytes) &&
		d != nil && len(s.demands) == 1 && s.demands[0] == d && !d.stand.troubled() && !e.capacity.awaited &&
		(pin == "" || pin == e.PinID(s.terms.Group))
}

// Status takes a status frame that arrived on ib for the pull with the subject reply.
func (e *Engine) Status(now At, ib *Inbox, reply string, st wire.Status) {
	e.at(now)
	e.stats.Statuses[st.Code]++
	p := ib.pull
	if p == nil || ib.reply != reply || p.ended {
		return
	}
	p.heard(now)
	if st.Condition == wire.Heartbeat {
		if p.owner != nil {
			e.report(p.owner, news{healthy: true})
		}
		return
	}
	e.capacity.free += p.promise(now, st, e.limits.Replay)
	if !p.ended {
		e.end(now, p, ending{status: st})
	}
	e.cover(now, p.share)
}

// Drained says that nothing more arrives on ib.
func (e *Engine) Drained(now At, ib *Inbox) {
	e.at(now)
	e.capacity.free += e.leaving.gone(ib)
	e.refill(now)
	e.forgetShares()
}
