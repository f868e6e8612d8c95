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
	draining bool   // messages on the wire still arrive, up to reserved
	reserved int
	// abandonedBy is the standing demand that gave up the last pull because it was silent. A frame that still
	// arrives shows that the server answers.
	abandonedBy *Demand

	memory pull // of the pull that is open on it
}

// pooled takes an idle inbox, or makes one.
func (e *Engine) pooled() *Inbox {
	if n := len(e.unused); n > 0 {
		ib := e.unused[n-1]
		e.unused = e.unused[:n-1]
		return ib
	}
	e.seq++
	prefix := e.base + "." + strconv.FormatUint(e.seq, 36) + "."
	return &Inbox{Subject: prefix + "*", Prefix: prefix}
}

// release gives back an inbox on which nothing more can arrive.
func (e *Engine) release(ib *Inbox) {
	if ib.single || e.closed {
		e.do(Effect{Kind: Unsubscribe, Inbox: ib})
		return
	}
	e.unused = append(e.unused, ib)
}

// retire drains the inbox of p, on which all its remaining messages may still arrive.
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
	e.capacity.free += ib.reserved
	if d := ib.abandonedBy; d != nil {
		ib.abandonedBy = nil
		d.stand.abandoned--
		if !d.Done {
			e.cover(now, d.share)
		}
	}
	e.refill(now)
	e.forgetShares()
}
