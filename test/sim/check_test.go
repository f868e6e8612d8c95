package sim

import (
	"math"
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

// checkLoss: every message was handed to somebody before it was settled, and
// what an actor did not acknowledge nobody else did.
func (a *audit) checkLoss() {
	if a.plan.ackNone() {
		a.checkLossUnacked()
		return
	}
	for _, seq := range a.order {
		f := a.fates[seq]
		switch {
		case f.as != model.Acked:
		case a.plan.ackAll() && a.covered(f):
		case !f.handedBy(f.settled):
			a.wrongWith(seq, "is acknowledged and was never handed over")
		case !f.tried():
			a.wrongWith(seq, "is acknowledged though none of its handlers did")
		}
		if n := f.mostDelivered(); f.as == model.Exceeded && n < uint64(a.plan.consumer.MaxDeliver) && !a.excused(0, f.settled) {
			a.wrongWith(seq, "was given up after %d deliveries", n)
		}
	}
}

// checkLossUnacked holds each message that was sent and not handed over, where
// nothing is acknowledged, against what Close says it dropped.
func (a *audit) checkLossUnacked() {
	missing := map[string][]uint64{}
	for _, seq := range a.order {
		for _, d := range a.fates[seq].deliveries {
			if d.got == nil && !a.excusedDelivery(d) {
				missing[d.life] = append(missing[d.life], seq)
			}
		}
	}
	for life, seqs := range missing {
		if dropped := a.lives[life].stats.Dropped; uint64(len(seqs)) > dropped {
			a.wrongWith(seqs[0], "is one of %v that never came out of %s, which says that it dropped %d", seqs, life, dropped)
		}
	}
}

// mostDelivered is how often a message was delivered, by the server's count.
func (f *fate) mostDelivered() (n uint64) {
	for _, d := range f.deliveries {
		n = max(n, d.count)
	}
	return n
}

func (f *fate) handedBy(at time.Duration) bool {
	for _, h := range f.handings {
		if h.at <= at {
			return true
		}
	}
	return false
}

func (f *fate) tried() bool {
	for _, h := range f.handings {
		if h.tried {
			return true
		}
	}
	return false
}

// covered reports whether a message may be acknowledged by one after it: where
// an acknowledgement covers all before it, one that got lost, was handed back, or
// was with a process that was killed comes again behind later ones.
func (a *audit) covered(f *fate) bool {
	for _, d := range f.deliveries {
		if d.got == nil && a.excusedDelivery(d) {
			return true
		}
	}
	for _, h := range f.handings {
		if a.killedAt(h.life, max(h.when, h.at)) || h.verb == naked && a.excused(h.when, h.when+a.plan.trip()) {
			return true
		}
	}
	// Of a delivery that was agreed on and never sent, a new leader knows.
	return len(f.naks) > 0 || len(f.deliveries) == 0 && a.excused(0, f.settled)
}

// checkStranded: what was sent and not handed over was given back.
func (a *audit) checkStranded() {
	if a.plan.ackNone() {
		return
	}
	for _, seq := range a.order {
		f := a.fates[seq]
		for _, d := range f.deliveries {
			if d.got == nil && !a.excusedDelivery(d) && (!a.plan.ackAll() || !f.neededNoMore(d)) && !f.copied(d) && !f.gaveBack(d) && (f.as != model.Termed || !a.abandons(d)) {
				a.wrongWith(seq, "is stranded: %v, to %s at %v, was neither handed over nor given back", d.deliveryID, d.life, d.at)
			}
		}
	}
}

// neededNoMore reports whether a delivery was a copy of a message that was
// acknowledged before its AckWait was over.
func (f *fate) neededNoMore(d *delivery) bool {
	return f.as == model.Acked && !anyWithin(f.overdue, d.at, f.settled)
}

// copied reports whether the client that was sent d had handled the message, did so
// then, or handled a later copy that took the place of d: what came of that stands
// for d.
func (f *fate) copied(d *delivery) bool {
	return slices.ContainsFunc(f.handings, func(h *handing) bool {
		switch {
		case h.life != d.life || h.verb == "":
			return false
		case h.verb != naked:
			return true
		case h.deliverSeq > d.deliverSeq:
			return h.run != nil && h.run.from <= d.at
		}
		return h.deliverSeq < d.deliverSeq && h.over >= d.at
	})
}

// gaveBack reports whether the client that was sent d gave it back, or a copy that
// came later.
func (f *fate) gaveBack(d *delivery) bool {
	for _, back := range f.deliveries {
		if back.life == d.life && back.got == nil && back.deliverSeq >= d.deliverSeq && slices.ContainsFunc(f.naks, func(n nak) bool { return n.at >= d.at && n.deliverSeq == back.deliverSeq }) {
			return true
		}
	}
	return false
}

// checkAckWait: no AckWait ran out but of messages that their actors forgot.
func (a *audit) checkAckWait() {
	for _, seq := range a.order {
		f := a.fates[seq]
		for _, at := range f.overdue {
			if d := f.lastBefore(at); d != nil && !anyWithin(f.delayed, d.at-a.plan.trip(), at) {
				a.checkOverdue(f, d, at)
			}
		}
	}
}

func (f *fate) lastBefore(at time.Duration) *delivery {
	var last *delivery
	for _, d := range f.deliveries {
		if d.at < at {
			last = d
		}
	}
	return last
}

func anyWithin(times []time.Duration, from, to time.Duration) bool {
	return slices.ContainsFunc(times, func(at time.Duration) bool { return at >= from && at <= to })
}

// numberedAgain reports whether d has a number that the server had given before it
// crashed. With ack policy all it may have taken an acknowledgement with a higher one,
// and d can be settled only after it came again.
func (a *audit) numberedAgain(d *delivery) bool {
	for _, f := range a.fates {
		if slices.ContainsFunc(f.deliveries, func(o *delivery) bool { return o.at < d.at && o.deliverSeq >= d.deliverSeq }) {
			return true
		}
	}
	return false
}

// checkOverdue looks into one message whose AckWait ran out after a delivery.
func (a *audit) checkOverdue(f *fate, d *delivery, at time.Duration) {
	h, trip := d.got, a.plan.trip()
	switch {
	case d.kind != model.Delivered || a.excused(d.at, at):
	case a.plan.ackAll() && (a.unanswered(f, d.at, at) || a.numberedAgain(d) || h != nil && h.run != nil && !h.run.keepAlive):
		// The acknowledgement may have waited for a message before it.
	case h == nil:
		if !a.excusedDelivery(d) && !a.carelessly(d) {
			a.wrongWith(f.seq, "waited for its AckWait until %v, and %s was never handed it", at, d.life)
		}
	case h.verb != "" && h.when+coalesced+trip < at:
		if h.dead && a.plan.loseDead > 0 && (!h.run.keepAlive || a.killedAt(h.life, min(at, h.when+deadWait))) {
			return // its dead letter was waited for
		}
		settled := h.when
		if h.dead {
			settled += trip // its dead letter is confirmed first
		}
		if !a.killedAt(h.life, settled) {
			a.wrongWith(f.seq, "waited for its AckWait until %v though %s settled it at %v", at, h.life, h.when)
		}
	case h.run != nil && h.run.keepAlive && (!h.done || h.over > at) && a.plan.consumer.AckWait >= 8*trip:
		if !a.killedAt(h.life, at) {
			a.wrongWith(f.seq, "its AckWait ran out at %v while %s of %s held it since %v", at, h.run.kind, h.life, h.at)
		}
	}
}

// unanswered reports whether the server has ignored what a client said of a
// message. Where an acknowledgement covers all before it, the server compares
// delivery sequences: once it has that of a redelivery, naks and acknowledgements
// of deliveries before are old to it, and their messages wait for their AckWait.
func (a *audit) unanswered(f *fate, from, to time.Duration) bool {
	return anyWithin(f.ignored, from, to) || anyWithin(a.unheard, from, to)
}

// deadWait is how long a dead letter is waited for.
const deadWait = 5 * time.Second

// coalesced is how long an acknowledgement may wait for others.
const coalesced = 25 * time.Millisecond

// carelessly reports whether a message may have been held by a stream that
// keeps nothing alive.
func (a *audit) carelessly(d *delivery) bool {
	for _, r := range a.runs {
		if r.life == d.life && !r.keepAlive && r.end >= d.at {
			return true
		}
	}
	return false
}

// killedAt reports whether a process was killed before what it sent at a time
// could arrive. An acknowledgement that covers others may wait for long before it
// is sent.
func (a *audit) killedAt(life string, at time.Duration) bool {
	end := a.lives[life]
	return end != nil && end.killed > 0 && (a.plan.ackAll() || at+a.plan.trip()+coalesced >= end.killed)
}

// checkDuplicates: nothing was handed over again that had been settled, unless
// a fault came in between.
func (a *audit) checkDuplicates() {
	for _, seq := range a.order {
		f := a.fates[seq]
		for _, d := range f.deliveries {
			if d.got == nil {
				continue
			}
			for _, h := range f.handings {
				if h.at < d.at && h.verb != naked && h.verb != "" && a.again(f, h, d) {
					a.wrongWith(seq, "%v was handed to %s though %s settled it at %v", d.deliveryID, d.life, h.life, h.when)
				}
			}
		}
	}
}

// checkCopies: a handler that is done with a message is not called for it again,
// however often it comes.
func (a *audit) checkCopies() {
	for _, seq := range a.order {
		for _, again := range a.fates[seq].handings {
			if again.run == nil || again.run.kind != useConsume || again.count < 2 {
				continue
			}
			for _, h := range a.fates[seq].handings {
				if h.run == again.run && h.at < again.at && (h.verb == acked || h.verb == termed && !h.dead) && !a.fates[seq].failedBetween(h, again) {
					a.wrongWith(seq, "%v was handled by %s at %v though it was done with it at %v", again.deliveryID, again.life, again.at, h.when)
				}
			}
		}
	}
}

// failedBetween reports whether a handler failed between two others: of a consumer
// that was made anew, which knows nothing of the first one.
func (f *fate) failedBetween(first, last *handing) bool {
	return slices.ContainsFunc(f.handings, func(h *handing) bool {
		return h.run == first.run && h.at >= first.at && h.at <= last.at && h != first && h != last && (h.verb == naked || h.verb == "")
	})
}

func (f *fate) nakedWithin(from, to time.Duration) bool {
	return slices.ContainsFunc(f.naks, func(n nak) bool { return n.at >= from && n.at <= to })
}

// deliveredAs is when the server delivered what was handed over as h.
func (f *fate) deliveredAs(h *handing) time.Duration {
	for _, d := range f.deliveries {
		if d.got == h {
			return d.at
		}
	}
	return math.MaxInt64
}

// again reports whether a delivery came although a message had been settled.
func (a *audit) again(f *fate, h *handing, d *delivery) bool {
	trip := a.plan.trip()
	if a.plan.ackAll() && (f.nakedWithin(h.when, d.at) || a.unanswered(f, h.when, d.at) || h.run != nil && !h.run.keepAlive) {
		return false // its acknowledgement would have covered one that was handed back
	}
	if h.dead && (a.plan.loseDead > 0 || h.run.end <= h.when+handlerMost+stopSlack) {
		return false // it is handed back where its dead letter is not confirmed, as when the drain is over
	}
	if gone, ok := a.plan.deletion(); ok && f.deliveredAs(h) <= gone.at && d.at > gone.at {
		return false // the new consumer knows nothing of what the old one delivered
	}
	if anyWithin(f.forgotten, h.when, h.when+coalesced+trip) {
		return false
	}
	return d.at > h.when+coalesced+trip &&
		!a.excused(h.when, h.when+coalesced+trip) && !a.killedAt(h.life, h.when)
}
