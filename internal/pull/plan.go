package pull

import (
	"cmp"
	"time"
)

const (
	// byteParts is the number of parts of a byte window. Each pull asks for one part, so that pulls overlap.
	byteParts = 4
	// refreshBytes is the max_bytes of a pull that only refreshes a pin: less than the size of any message.
	refreshBytes = 1
	// mostSilent is the number of silent pulls after which a standing demand waits until the consumer's server has answered
	// something else: on a connection that carries nothing, more pulls would get no answer either.
	mostSilent = 2
)

// view is the input of planCall and planStanding, besides the share group.
type view struct {
	limits *Limits
	room   *capacity
	pinned bool // the client holds the pin of the group
	trip   time.Duration
}

// step is the next step of a demand.
type step uint8

const (
	waits      step = iota // for a frame, a credit or a deadline
	waitsSlots             // until slots of the channel are free
	joins                  // is covered by a pull that is open
	hurries                // waits for a no-wait pull that is in flight
	pulls                  // a pull goes out
)

// order is the next step of a demand, and the pull that goes out.
type order struct {
	step    step
	open    *pull // the pull that it joins or hurries
	kind    kind
	batch   int  // at most
	bytes   int  // the max_bytes for a standing demand; 0: none
	refresh bool // it only refreshes a pin
}

// planCall decides the next step of a call that no pull covers. The first row that applies decides:
//
//	| the call                                  | what follows                                                      |
//	| ---                                       | ---                                                               |
//	| has not looked; a no-wait pull is open    | waits for its end, which is hurried, and shares the next          |
//	| found nothing, and waits; a long pull of  | is covered by that one                                            |
//	| its kind has Want messages to spare, and  |                                                                   |
//	| lives until the call's deadline           |                                                                   |
//	| no free slots in the channel              | waits for some                                                    |
//	| has not looked                            | a no-wait pull goes out for all such calls                        |
//	| found nothing                             | a long pull goes out for all such calls of its mode               |
func planCall(d *Demand, v *view) order {
	for _, p := range d.share.pulls {
		switch {
		case !p.awaited():
		case !d.long && p.kind == noWait:
			return order{step: hurries, open: p}
		case d.long && !d.NoWait && d.share.serves(p, d):
			return order{step: joins, open: p}
		}
	}
	switch {
	case v.room.free < 1:
		return order{step: waitsSlots}
	case d.long:
		return order{step: pulls, kind: d.share.longKind(d), batch: v.room.long()}
	}
	return order{step: pulls, kind: noWait, batch: v.room.free}
}

// serves reports whether a long pull will bring all messages that d wants beyond those for its own demands.
func (s *share) serves(p *pull, d *Demand) bool {
	return p.kind == s.longKind(d) && p.left-p.need >= d.Want && !s.unshared && p.sent+p.req.Expires+2*ExpiresMargin >= d.Deadline
}

// longKind returns the kind of a long pull for d.
func (s *share) longKind(d *Demand) kind {
	if !d.NoWait && (d.Mode == Fill || s.claimed) {
		return longPull
	}
	return oneShot
}

// onOrder counts the messages that the pulls of a standing demand may still bring.
type onOrder struct {
	pulls, messages int  // open pulls, and the messages that they may bring
	inDoubt         int  // pulls that the server may or may not have
	ended           int  // pulls that the server has ended, with messages that are still expected
	promised        int  // those messages
	bytes           int  // of all messages
	alone           bool // one of the open pulls is for a message that fits no other pull
}

func (d *Demand) onOrder(now At) (o onOrder) {
	for _, p := range d.share.pulls {
		if p.owner != d {
			continue
		}
		if d.Bytes > 0 && !p.silent {
			o.bytes += p.bytesToCome(d.Bytes)
		}
		switch {
		case p.inDoubt:
			o.inDoubt++
		case p.silent: // p was lost, or its next message makes it count again
		case !p.ended:
			o.pulls++
			o.messages += p.left
			o.alone = o.alone || p.alone
		case now < p.promised:
			o.ended++
			o.promised += p.left
		}
	}
	return o
}

// planStanding keeps a standing demand's window on order. Pulls overlap: the next pull goes out as soon as half of the messages that may
// wait for a worker are neither held nor on order, or when nothing is on order and a worker waits. Exceptions:
//
//	| state                                                  | the pull waits for                            |
//	| ---                                                    | ---                                           |
//	| trouble: a pull is open, mostSilent are in doubt, or   | the end of one, an answer, or the end of the  |
//	| the back-off runs                                      | back-off. Then a probe goes out               |
//	| pinned policy, no pin, and messages were promised      | those messages, which bring the pin           |
//	| no free slots in the channel                           | free slots                                    |
//	| the next message fits no pull, and some are held or on | the end of those. Then the message is pulled  |
//	| order                                                  | alone, without the bound of the byte window   |
//	| unless the pin has to be refreshed:                    |                                               |
//	| - a message is pulled alone                            | the end of that pull                          |
//	| - the window is full, or enough pulls are open         | credit                                        |
//	| - quiet, and an eighth of the window is on order       | messages                                      |
//	| - less than half of the window is free, and something  | credit                                        |
//	|   is on order, or held while no worker waits           |                                               |
//	| - less is free of the byte window than a pull asks for | credit                                        |
//
// A pull that refreshes the pin, and does not fit otherwise, has refreshBytes as its max_bytes.
func planStanding(now At, d *Demand, v *view) order {
	s, o := d.stand, d.onOrder(now)
	refresh := v.pinned && now >= s.lastPull+v.limits.pinRefresh()
	open := o.messages + o.promised
	most := min(d.onOrderMost(v.trip), v.room.slots-v.room.slots/9) // the other slots are for calls while the window is full
	need := min(s.window-s.held, most) - open
	half := max(1, (min(s.window-d.Workers, most)+1)/2)
	enough := max(1, min(s.window, cmp.Or(v.limits.Batch, s.window))/8) // in quiet times
	batch := v.limits.batch(min(need, v.room.long()))
	bytes, fits := d.pullBytes(&o, v.limits)
	switch {
	case s.probing && (o.pulls > 0 || o.inDoubt >= mostSilent || now < s.retryAt):
		return order{}
	case v.limits.Pinned && !v.pinned && o.promised > 0:
		return order{}
	case v.room.free < 1 && (need > 0 || refresh):
		return order{step: waitsSlots}
	case v.room.free < 1:
		return order{}
	case s.oversize && (s.held > 0 || open > 0):
		return order{}
	case s.oversize:
		batch = 1
	case refresh:
	case o.alone, batch < 1, v.manyPulls(&o), s.quiet && o.messages >= enough:
		return order{}
	case need < half && (open > 0 || s.held > 0 && !s.starving):
		return order{}
	case !fits:
		return order{}
	}
	return order{step: pulls, kind: windowed, batch: max(1, batch), bytes: bytes, refresh: !fits || batch < 1}
}

// pullBytes returns the max_bytes of the next pull, or 0 for none. It reports false if too little of the byte window is free.
func (d *Demand) pullBytes(o *onOrder, limits *Limits) (n int, ok bool) {
	s := d.stand
	if d.Bytes > 0 && !s.oversize {
		n = max(1, d.Bytes/byteParts)
		if d.Bytes-s.heldBytes-o.bytes < n {
			return 0, false
		}
	}
	n = min(cmp.Or(n, d.MaxBytes), cmp.Or(d.MaxBytes, n)) // the smaller one, where 0 is none
	return min(n, cmp.Or(limits.Bytes, n)), true
}

// manyPulls reports whether a standing demand has enough pulls: a quarter of the consumer's MaxWaiting, because the
// server drops pulls that exceed its queue. A server that ends each pull with a promise of messages must not get more and more.
func (v *view) manyPulls(o *onOrder) bool {
	most := v.room.slots
	if w := v.limits.Waiting; w > 0 {
		most = min(w, max(2, w/4))
	}
	return o.pulls >= most || o.ended > most
}
