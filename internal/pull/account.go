package pull

import (
	"slices"

	"github.com/jetpull/jetpull/internal/wire"
)

// This file has the consequences of events. end ends a pull, and giveUp ends one for which messages may still arrive. Both call close, which removes
// it from the open pulls. conclude decides how the share group and the demands of the pull continue. finish ends a demand.

// spareShares is how many share groups are kept for the next calls with their terms.
const spareShares = 32

// shareOf returns the share group for terms. It creates the group if there is none.
func (e *Engine) shareOf(terms Terms, unshared bool) *share {
	if !unshared {
		for _, s := range e.shares {
			if s.terms == terms && !s.unshared {
				return s
			}
		}
	}
	e.forgetShares() // otherwise the groups of ended calls accumulate
	s := &share{terms: terms, unshared: unshared}
	e.shares = append(e.shares, s)
	return s
}

// forgetShares drops the unshared groups of calls that have ended, and unused others if there are many.
func (e *Engine) forgetShares() {
	crowded := len(e.shares) > spareShares
	e.shares = slices.DeleteFunc(e.shares, func(s *share) bool { return !s.used() && (s.unshared || crowded) })
}

// end closes p's account. Its inbox is used again only if nothing more can arrive. The demands that it covered end
// or get another pull.
func (e *Engine) end(now At, p *pull, o ending) {
	if o.leavesOpen() {
		e.giveUp(now, p, o.lost)
	} else {
		e.close(p)
		e.capacity.free += p.left
		if ib := p.inbox; ib.single || e.closed {
			e.out.do(Effect{Kind: Unsubscribe, Inbox: ib})
		} else {
			e.unused = append(e.unused, ib)
		}
	}
	e.conclude(now, p, &o)
}

// close removes p from the open pulls.
func (e *Engine) close(p *pull) {
	p.share.pulls = without(p.share.pulls, p)
	p.inbox.close()
}

// giveUp ends p while messages may still arrive for it. If the connection is lost, none can, and the inbox drains at once.
func (e *Engine) giveUp(now At, p *pull, lost bool) {
	e.close(p)
	e.leaving.add(now, p.inbox, p.left, lost || e.down || e.dead != nil)
}

// conclude decides how the share group and the demands of p continue.
func (e *Engine) conclude(now At, p *pull, o *ending) {
	s, class := p.share, o.status.Condition.Class()
	if o.silent {
		e.stats.Silent++
	}
	if s.pullEnded(now, p, o, &e.limits, e.rng) {
		e.out.do(Effect{Kind: Doubt})
	}
	if d := p.owner; d != nil && !d.Done {
		e.report(d, d.stand.pullEnded(now, p, o, e.rng))
	}
	for i := 0; p.demands > 0 && i < len(s.demands); {
		d := s.demands[i]
		if d.pull == p {
			d.detach()
			if over, err := d.pullEnded(now, p, o); over {
				e.finish(d, err)
			}
		}
		if !d.Done {
			i++
		}
	}
	switch {
	case class == wire.Pin && p.req.ID != "":
		e.PinLost(s.terms.Group, p.req.ID)
	case o.status.Condition == wire.LeadershipChange:
		e.PinLost(s.terms.Group, e.PinID(s.terms.Group))
	}
}

// report reports the end of a pull to the caller of a standing demand.
func (e *Engine) report(d *Demand, n news) {
	if n.healthy && d.stand.heal() { // the consumer may have changed meanwhile
		e.out.do(Effect{Kind: Problem, Demand: d})
		e.out.do(Effect{Kind: Doubt})
	}
	if n.trouble != nil {
		d.stand.probing = true
		e.out.do(Effect{Kind: Problem, Demand: d, Err: n.trouble})
	}
	if n.end != nil {
		e.finish(d, n.end)
	}
}

// PinLost drops id if it is the pin id held in group.
func (e *Engine) PinLost(group, id string) {
	if id != "" && e.PinID(group) == id {
		e.pins.set(group, "")
		e.out.changePin(Pin{Group: group, ID: id})
	}
}

// gainPin records the pin id of a message of the pull by. Pulls without the id are on stand-by from now on. They end, and pulls with the id
// replace them.
func (e *Engine) gainPin(now At, group, id string, by *pull) {
	e.PinLost(group, e.PinID(group))
	e.pins.set(group, id)
	e.out.changePin(Pin{Group: group, ID: id, Gained: true})
	for _, s := range e.shares {
		for i := len(s.pulls) - 1; i >= 0 && s.terms.Group == group; i-- {
			if p := s.pulls[i]; p != by && !p.ended && p.kind != noWait && p.req.ID != id {
				e.end(now, p, ending{unsure: true})
			}
		}
	}
}

// deliver gives m to d.
func (e *Engine) deliver(d *Demand, m Message, size int) {
	over := d.add(m, size)
	switch {
	case d.Mode == Standing:
		d.stand.starving = false
		e.out.deliver(d)
	case over:
		e.finish(d, nil)
	default:
		d.lookAgain()
	}
}

// finish ends a demand. A call that has messages gets no error.
func (e *Engine) finish(d *Demand, err error) {
	if d.Done {
		return
	}
	if d.n > 0 && d.Mode != Standing {
		err = nil
	}
	d.Done, d.Err = true, err
	d.detach()
	if d.share != nil {
		d.share.demands = without(d.share.demands, d)
	}
	if d.Mode == Standing {
		e.out.deliver(d)
	} else {
		e.out.do(Effect{Kind: Wake, Demand: d})
	}
}

// late takes a message for which no demand waits, neither in its share group nor in s, the group of later calls with its terms.
// The message is handed back to the server, or with ack policy none waits for the next demand in s.
func (e *Engine) late(s *share, m Message, size int) {
	if e.closed || !e.limits.AckNone {
		e.handBack(m)
		return
	}
	i, _ := slices.BinarySearchFunc(s.stash, m.Sequence(), func(a stashed, seq uint64) int { return int(a.msg.Sequence() - seq) })
	s.stash = slices.Insert(s.stash, i, stashed{m, size}) // a call that ends can return messages older than some that have arrived since
}

// handBack hands a message back to the server. With ack policy none the server accepts none, so the message is lost.
func (e *Engine) handBack(m Message) {
	if e.limits.AckNone {
		e.stats.Dropped++
		return
	}
	e.stats.HandedBack++
	e.leaving.handBack(m)
}

// unstash gives a demand the messages that arrived late for others.
func (e *Engine) unstash(d *Demand) {
	if !e.limits.AckNone {
		return
	}
	s := d.share
	if s.unshared {
		s = e.shareOf(s.terms, false)
	}
	for len(s.stash) > 0 && d.wants() && !d.Done {
		late := s.stash[0]
		if s != d.share && d.bytes+late.size > d.MaxBytes {
			return
		}
		s.stash = s.stash[1:]
		e.deliver(d, late.msg, late.size)
	}
}

// proven ends the requests to the consumer if nothing is left open. While the connection is down, none are sent.
func (e *Engine) proven() {
	l := &e.leaving
	l.proving = l.proving && !e.closed && !e.down && (l.subscribed() || len(e.inDoubt()) > 0)
}

// inDoubt returns the pulls that the server may or may not have.
func (e *Engine) inDoubt() (pulls []*pull) {
	for _, s := range e.shares {
		for _, p := range s.pulls {
			if p.inDoubt {
				pulls = append(pulls, p)
			}
		}
	}
	return pulls
}
