package pull

import "strconv"

// Inbox is one subscription. A pooled inbox serves pull after pull by a wildcard and the pull's token; a single
// one serves one pull and is dropped.
type Inbox[M any] struct {
	Subject string // what is subscribed to
	Prefix  string // of the reply subjects; the subject itself for a single inbox
	Ref     any    // the driver's

	single   bool
	share    *share[M] // of the pull it served last
	pull     *pull[M]  // open on it
	draining bool      // what is on the wire still arrives, up to reserved messages
	reserved int
	// abandonedBy is the standing demand that gave up the last pull because it was silent. A frame that still
	// arrives shows that the server answers.
	abandonedBy *Demand[M]

	memory pull[M] // of the pull that is open on it
}

// Terms are those of the pull that ib served last; nil: there was none.
func (ib *Inbox[M]) Terms() *Terms {
	if ib.share == nil {
		return nil
	}
	return &ib.share.terms
}

// Adopt makes an inbox that is subscribed already one of the pool.
func (e *Engine[M]) Adopt(ib *Inbox[M]) { e.idle = append(e.idle, ib) }

// pooled takes an idle inbox, or makes one.
func (e *Engine[M]) pooled() *Inbox[M] {
	if n := len(e.idle); n > 0 {
		ib := e.idle[n-1]
		e.idle = e.idle[:n-1]
		return ib
	}
	e.seq++
	prefix := e.base + "." + strconv.FormatUint(e.seq, 36) + "."
	return &Inbox[M]{Subject: prefix + "*", Prefix: prefix}
}

// single makes an inbox for one pull.
func (e *Engine[M]) single() *Inbox[M] {
	return &Inbox[M]{Prefix: e.base + ".", single: true}
}

// release gives back an inbox on which nothing more can arrive. A broken one may not even be subscribed.
func (e *Engine[M]) release(ib *Inbox[M], broken bool) {
	if ib.single || e.closed || broken {
		e.drop(ib)
		return
	}
	e.idle = append(e.idle, ib)
}

func (e *Engine[M]) drop(ib *Inbox[M]) { e.do(Effect[M]{Kind: Unsubscribe, Inbox: ib}) }

// retire drains the inbox of p, on which all may still arrive that p was to bring.
func (e *Engine[M]) retire(p *pull[M], silent bool) {
	ib := p.inbox
	ib.draining, ib.reserved = true, p.left
	if d := p.owner; silent && d != nil && !d.Done {
		ib.abandonedBy = d
		d.stand.abandoned++
	}
	e.draining++
	e.do(Effect[M]{Kind: Drain, Inbox: ib, Silent: silent && p.owner != nil})
}

// Drained says that nothing more arrives on ib.
func (e *Engine[M]) Drained(now At, ib *Inbox[M]) {
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
func (e *Engine[M]) outgrown(n int) { e.capacity.want = max(e.capacity.want, min(n, e.capacity.most)) }

// tooSmall reports whether a demand could use a larger channel. With ack policy none no pull waits for one.
func (e *Engine[M]) tooSmall() bool {
	return e.capacity.want > e.capacity.slots && !e.closed && !e.limits.AckNone
}

// alone reports whether all pulls are d's.
func (e *Engine[M]) alone(d *Demand[M]) bool {
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
func (e *Engine[M]) Trim() {
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
func (e *Engine[M]) grow(now At) {
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
func (e *Engine[M]) bare() bool {
	for _, s := range e.shares {
		if len(s.pulls) > 0 {
			return false
		}
	}
	return e.draining == 0 && e.capacity.room == e.capacity.slots
}

// resize asks for a channel of another size, where nothing can arrive on this one.
func (e *Engine[M]) resize(slots int) {
	for _, ib := range e.idle {
		e.drop(ib)
	}
	e.idle = nil
	e.capacity = capacity{first: e.capacity.first, slots: slots, room: slots, most: e.capacity.most, short: e.capacity.short}
	e.do(Effect[M]{Kind: Resize, Slots: slots})
}
