package pull

import "strconv"

// Inbox is one subscription. A pooled inbox serves pull after pull by a wildcard and the pull's token; a single
// one serves one pull and is dropped.
type Inbox struct {
	Subject string // what is subscribed to
	Prefix  string // of the reply subjects; the subject itself for a single inbox
	Ref     any    // the driver's

	single   bool
	share    *share // of the pull it served last
	pull     *pull  // open on it
	draining bool   // what is on the wire still arrives, up to reserved messages
	reserved int
	// abandonedBy is the standing demand that gave up the last pull because it was silent. A frame that still
	// arrives shows that the server answers.
	abandonedBy *Demand

	memory pull // of the pull that is open on it
}

// Terms are those of the pull that ib served last; nil: there was none.
func (ib *Inbox) Terms() *Terms {
	if ib.share == nil {
		return nil
	}
	return &ib.share.terms
}

// Adopt makes an inbox that is subscribed already one of the pool.
func (e *Engine) Adopt(ib *Inbox) { e.idle = append(e.idle, ib) }

// pooled takes an idle inbox, or makes one.
func (e *Engine) pooled() *Inbox {
	if n := len(e.idle); n > 0 {
		ib := e.idle[n-1]
		e.idle = e.idle[:n-1]
		return ib
	}
	e.seq++
	prefix := e.base + "." + strconv.FormatUint(e.seq, 36) + "."
	return &Inbox{Subject: prefix + "*", Prefix: prefix}
}

// single makes an inbox for one pull.
func (e *Engine) single() *Inbox {
	return &Inbox{Prefix: e.base + ".", single: true}
}

// release gives back an inbox on which nothing more can arrive. A broken one may not even be subscribed.
func (e *Engine) release(ib *Inbox, broken bool) {
	if ib.single || e.closed || broken {
		e.drop(ib)
		return
	}
	e.idle = append(e.idle, ib)
}

func (e *Engine) drop(ib *Inbox) { e.do(Effect{Kind: Unsubscribe, Inbox: ib}) }

// retire drains the inbox of p, on which all may still arrive that p was to bring.
func (e *Engine) retire(p *pull, silent bool) {
	ib := p.inbox
	ib.draining, ib.reserved = true, p.left
	if d := p.owner; silent && d != nil && !d.Done {
		ib.abandonedBy = d
		d.stand.abandoned++
	}
	e.draining++
	e.do(Effect{Kind: Drain, Inbox: ib, Silent: silent && p.owner != nil})
}

// Drained says that nothing more arrives on ib.
func (e *Engine) Drained(now At, ib *Inbox) {
	if !ib.draining {
		return
	}
	ib.draining = false
	e.draining--
	e.capacity.room += ib.reserved
	if d := ib.abandonedBy; d != nil {
		ib.abandonedBy = nil
		d.stand.abandoned--
		if !d.Done {
			e.settle(now, d.share)
		}
	}
	e.grow(now)
	e.refill(now)
	e.forgetShares()
}

// outgrown notes that a demand could use n messages on order. The channel, which is small at first because most
// subscriptions wait for one message at a time, is replaced when nothing can arrive on it.
func (e *Engine) outgrown(n int) { e.capacity.want = max(e.capacity.want, min(n, e.capacity.most)) }

// tooSmall reports whether a demand could use a larger channel. With ack policy none no pull waits for one.
func (e *Engine) tooSmall() bool {
	return e.capacity.want > e.capacity.slots && !e.closed && !e.limits.AckNone
}

// alone reports whether all pulls are d's.
func (e *Engine) alone(d *Demand) bool {
	for _, s := range e.shares {
		for _, p := range s.pulls {
			if p.owner != d {
				return false
			}
		}
	}
	return true
}

// Trim gives back memory for messages: nothing is held. The first channel replaces a larger one when the open pull
// has expired.
func (e *Engine) Trim() {
	e.capacity.idle = e.capacity.slots > e.capacity.first && !e.limits.AckNone
	for _, s := range e.shares {
		for _, d := range s.demands {
			if d.Mode == Standing && len(d.Got) == 0 {
				d.Got, d.spare = nil, nil
			}
		}
	}
}

// grow asks for a larger channel where a demand can use one and nothing is open on this one.
func (e *Engine) grow(now At) {
	c := &e.capacity
	if c.want <= c.slots || e.closed || !e.bare() {
		return
	}
	slots := c.slots
	for slots < c.want {
		slots = min(4*slots, c.most)
	}
	e.resize(slots)
	for _, s := range e.shares {
		e.settleShare(now, s)
	}
}

// bare reports whether nothing can arrive.
func (e *Engine) bare() bool {
	for _, s := range e.shares {
		if len(s.pulls) > 0 {
			return false
		}
	}
	return e.draining == 0 && e.capacity.room == e.capacity.slots
}

// resize asks for a channel of another size, where nothing can arrive on this one.
func (e *Engine) resize(slots int) {
	for _, ib := range e.idle {
		e.drop(ib)
	}
	e.idle = nil
	e.capacity = capacity{first: e.capacity.first, slots: slots, room: slots, most: e.capacity.most, short: e.capacity.short}
	e.do(Effect{Kind: Resize, Slots: slots})
}
