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
// Its pull ends if that was its last message.
func (e *Engine) Message(now At, ib *Inbox, m Message, size int, pin string) {
	e.stats.Messages++
	e.stats.Bytes += uint64(size)
	s, p := ib.memory.share, ib.pull
	if s == nil { // ib stands for a dropped inbox
		e.handBack(m)
		return
	}
	if e.pins.isNew(s.terms.Group, pin) {
		e.gainPin(now, s.terms.Group, pin, p)
	}
	var owner *Demand
	if p != nil {
		owner = p.owner
		s.tries, s.claimed = 0, false
		p.brought(now)
		p.took(size)
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
		e.leaving.arrived(now, ib, d != nil) // before m is handed back: ib may drain
	}
	if d != nil {
		e.deliver(d, m, size)
	}
	if p != nil && p.left == 0 {
		e.end(now, p, ending{status: p.status})
	}
	if d == nil {
		e.dropUnneeded(now, s) // otherwise one of them gets m again
		e.late(to, m, size)
	}
}

// Status takes a status frame that arrived on ib for the pull with the subject reply.
func (e *Engine) Status(now At, ib *Inbox, reply string, st wire.Status) {
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
	p.promise(now, st, e.limits.Replay)
	if !p.ended {
		e.end(now, p, ending{status: st})
	}
}

// Drained says that nothing more arrives on ib.
func (e *Engine) Drained(ib *Inbox) { e.leaving.gone(ib) }
