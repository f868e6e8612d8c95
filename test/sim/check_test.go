package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

// checkLoss: every message was handed to somebody before it was settled, and what an actor did not acknowledge or give up nobody else did. With ack
// policy all the caller decides what an acknowledgement covers.
func (a *audit) checkLoss() {
	switch {
	case a.plan.ackNone():
		a.checkLossUnacked()
		return
	case a.plan.ackAll():
		return
	}
	for _, seq := range a.order {
		f := a.courses[seq]
		switch {
		case f.as == model.Termed && !slices.ContainsFunc(f.handings, func(h *handing) bool { return h.verb == termed || h.verb == "" || h.mayDie }):
			a.wrongWith(seq, "is terminated and was not given up")
		case f.as != model.Acked:
		case !slices.ContainsFunc(f.handings, func(h *handing) bool { return h.at <= f.settled }):
			a.wrongWith(seq, "is acknowledged and was never handed over")
		case !slices.ContainsFunc(f.handings, func(h *handing) bool { return h.tried }):
			a.wrongWith(seq, "is acknowledged though none of its handlers did")
		}
	}
}

// held reports whether a handler had the message of d when d was sent: a consumer that
// was created again delivers it again, and it is not handled again.
func (f *course) held(d *delivery) bool {
	return slices.ContainsFunc(f.handings, func(h *handing) bool {
		return h.life == d.life && h.at <= d.at && (!h.done || d.at <= h.over)
	})
}

// checkLossUnacked holds what was sent and not handed over, where nothing is acknowledged, against what Close says was dropped. That counts what
// others were sent too, but nothing twice.
func (a *audit) checkLossUnacked() {
	gone, deleted := a.plan.restart() // one that is created again delivers all again
	missing, sent := map[string][]uint64{}, uint64(0)
	for _, seq := range a.order {
		sent += uint64(len(a.courses[seq].deliveries))
		for _, d := range a.courses[seq].deliveries {
			if d.got == nil && !a.excusedDelivery(d) && (!deleted || d.at > gone.at) && !a.courses[seq].held(d) {
				missing[d.life] = append(missing[d.life], seq)
			}
		}
	}
	for life, end := range a.lives {
		if dropped := end.stats.Dropped; uint64(len(missing[life])) > dropped {
			a.wrongWith(missing[life][0], "is one of %v that never came out of %s, which says that it dropped %d", missing[life], life, dropped)
		} else if dropped > sent {
			a.wrong("%s says that it dropped %d, and only %d were sent", life, dropped, sent)
		}
	}
}

// checkStranded: what was sent and not handed over was given back.
func (a *audit) checkStranded() {
	if a.plan.ackNone() {
		return
	}
	for _, seq := range a.order {
		f := a.courses[seq]
		for _, d := range f.deliveries {
			_, _, back := f.nakedBy(d.life, nil, d.at, d.at, math.MaxInt64) // with a later delivery too
			if d.got == nil && !back && !a.excusedDelivery(d) && !a.copied(f, d) {
				a.wrongWith(seq, "is stranded: %v, to %s at %v, was neither handed over nor given back", d.deliveryID, d.life, d.at)
			}
		}
	}
}

// copied reports whether the client that was sent d had handled the message, did so then, or handled a later delivery that took the place of d:
// what came of that stands for d.
func (a *audit) copied(f *course, d *delivery) bool {
	return slices.ContainsFunc(f.handings, func(h *handing) bool {
		replaces := f.sentWithin(h.life, h.deliveryID, d.at, h.at)
		switch {
		case h.life != d.life:
			return false
		case replaces && (h.run == nil || h.run.from <= a.arrives(d.at)): // a call may have returned d itself
			return true
		case h.verb == "" && !h.late:
			return a.leftUnsettled(h, d)
		case h.final():
			return true
		case replaces:
			return false
		case h.late:
			return h.at <= d.at // it has it still
		}
		return h.sent < d.at && h.when >= d.at && h.verb == naked
	})
}

// leftUnsettled reports whether d took the place of the delivery that Messages or Consume had, and h never settled, or after the end of its client:
// then both wait for AckWait. They do too if the handler handed its delivery back itself, and that was from before a reset: see Msg.Nak.
func (a *audit) leftUnsettled(h *handing, d *delivery) bool {
	had := h.life == d.life && h.run != nil && h.sent < d.at && h.at <= a.arrives(d.at) && (!h.done || d.at <= h.over)
	reset, ok := a.plan.restart()
	forgotten := ok && reset.kind == faultReset && h.sent <= reset.at && reset.at <= d.at && d.at <= h.when
	return had && (h.verb == "" || h.verb == naked && !h.failed && forgotten)
}

// checkAckWait: no AckWait ran out but of messages that their actors forgot.
func (a *audit) checkAckWait() {
	for _, seq := range a.order {
		f := a.courses[seq]
		for _, at := range f.overdue {
			if d := f.lastBefore(at); d != nil && !a.dueByNak(f, d, at) && !a.excused(d.at, at) && !a.shortened(d.life, at) {
				a.checkOverdue(f, d, at)
			}
		}
	}
}

// dueByNak reports whether a message was due at a time because of a NAK after a delivery, from whichever client. The server times a NAK with a
// delay as an AckWait. Of three servers the leader decides on a delivery before it sends it, so the NAK can come in between.
func (a *audit) dueByNak(f *course, d *delivery, at time.Duration) bool {
	decided := d.at - a.plan.trip()
	return slices.ContainsFunc(f.naks, func(n nak) bool { return n.taken && n.at >= decided && n.at <= at })
}

func (f *course) lastBefore(at time.Duration) *delivery {
	var last *delivery
	for _, d := range f.deliveries {
		if d.at < at {
			last = d
		}
	}
	return last
}

// shortened reports whether the consumer's configuration had been changed since a life read it first, which it need not have noticed.
func (a *audit) shortened(life string, by time.Duration) bool {
	bound := a.bound(life)
	return slices.ContainsFunc(a.changes, func(c change) bool { return c.at >= bound && c.at <= by })
}

// bound is when a life subscribed; 0: that is not known.
func (a *audit) bound(life string) time.Duration {
	if end := a.lives[life]; end != nil {
		return end.bound
	}
	return 0
}

// checkOverdue looks into one message whose AckWait ran out after a delivery.
func (a *audit) checkOverdue(f *course, d *delivery, at time.Duration) {
	h, trip := d.got, a.plan.trip()
	least, _ := a.plan.ackWaits()
	switch {
	case d.kind != model.Delivered:
	case f.sentWithin(d.life, d.deliveryID, d.at, math.MaxInt64): // after a reset: which of the two was handed over is not known
	case h == nil:
		left := slices.ContainsFunc(f.handings, func(h *handing) bool { return a.leftUnsettled(h, d) })
		if !left && !a.plan.ackAll() && !a.excusedDelivery(d) && !a.carelessly(d) {
			a.wrongWith(f.seq, "waited for its AckWait until %v, and %s was never handed it", at, d.life)
		}
	case h.run != nil && h.run.keepAlive && (!h.done || h.over > at) && h.run.end > at && h.verb != naked:
		if least >= 8*trip && !a.killedAt(h.life, at) {
			a.wrongWith(f.seq, "its AckWait ran out at %v while %s of %s held it since %v", at, h.run.kind, h.life, h.at)
		}
	case a.plan.ackAll(), h.verb == "", a.arrived(h) >= at, a.killedAt(h.life, at):
	case h.verb == kept && h.run.stopped > 0 && at >= h.run.stopped+least/4-trip && at <= h.run.end:
		// It goes back at the stop, with at least a quarter of AckWait left. Its NAK waits for the UNSUB of the run: see DESIGN.md.
	case h.verb == kept:
		a.wrongWith(f.seq, "its AckWait ran out at %v while %s was to retry it since %v", at, h.life, h.over)
	default:
		a.wrongWith(f.seq, "waited for its AckWait until %v though %s settled it at %v", at, h.life, h.when)
	}
}

// batched is how long an acknowledgement may wait for others.
const batched = time.Millisecond

// carelessly reports whether a message may have been held by a stream that keeps nothing alive.
func (a *audit) carelessly(d *delivery) bool {
	return slices.ContainsFunc(a.runs, func(r *run) bool { return r.life == d.life && !r.keepAlive && r.end >= d.at })
}

// arrived is when the server has what h was settled with, at the latest, or that it is in progress: what becomes a dead
// letter is terminated after that is stored.
func (a *audit) arrived(h *handing) time.Duration {
	return h.when + batched + a.plan.trip()
}

// killedAt reports whether a process was killed before what it sent at a time could arrive.
func (a *audit) killedAt(life string, at time.Duration) bool {
	end := a.lives[life]
	return end != nil && end.killed > 0 && at+a.plan.trip()+batched >= end.killed
}

// checkDuplicates: nothing was handed over again that had been settled, unless a fault came in between, or a server that crashed forgot the delivery.
func (a *audit) checkDuplicates() {
	for _, seq := range a.order {
		f := a.courses[seq]
		for _, d := range f.deliveries {
			for _, h := range f.handings {
				if d.got != nil && h.at < d.at && h.final() && !a.plan.ackAll() && a.again(f, h, d) && !a.forgotten(h, d) {
					a.wrongWith(seq, "%v was handed to %s though %s settled it at %v", d.deliveryID, d.life, h.life, h.when)
				}
			}
		}
	}
}

// again reports whether a delivery came although a message had been settled.
func (a *audit) again(f *course, h *handing, d *delivery) bool {
	sent := a.arrived(h)
	if h.dead && (a.plan.loseDead > 0 || h.run.end <= h.when+handlerMost+stopSlack) {
		return false // it is handed back where its dead letter is not confirmed, as when the drain is over
	}
	if gone, ok := a.plan.restart(); ok && h.sent <= gone.at+gone.length && d.at > gone.at+gone.length {
		return false // the new consumer knows nothing of what the old one delivered, also while its deletion was on the way
	}
	if len(a.plan.before) > 0 && slices.ContainsFunc(f.overdue, func(at time.Duration) bool { return at <= sent }) {
		return false // the server may pause before a redelivery, and does not look again whether the message is settled
	}
	if h.failed && d.at <= sent+judged+a.plan.trip() && a.shortened(h.life, d.at) {
		return false // an AckWait that was made shorter ran out while the consumer was read and the dead letter stored
	}
	return d.at > sent && !a.excused(h.when, sent) && !a.killedAt(h.life, sent)
}

// lateMost is how long after AckWait Consume remembers what it has settled.
const lateMost = 5 * time.Second

// remembered is the longest AckWait that a Consume knows of: it may go by any configuration that there has been.
func (a *audit) remembered(by time.Duration) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, c := range a.configs(0, by) {
		least = min(least, slices.Max(append(c.BackOff[:len(c.BackOff):len(c.BackOff)], c.AckWait)))
	}
	return least
}

// forgotten reports whether the server crashed after the delivery that was handed over, and forgot it: it does not count it when it delivers the
// message as d. It does not take an acknowledgement of such a delivery. If there are acknowledgements, the message was in flight at the crash.
// checkCopies judges what a Consume remembers then.
func (a *audit) forgotten(h *handing, d *delivery) bool {
	by := h.when
	if a.plan.ackNone() {
		by = d.at
	}
	return d.count <= h.count && slices.ContainsFunc(a.plan.faults, func(x fault) bool {
		return x.kind == faultCrash && x.at >= h.sent && x.at <= by
	})
}

// checkCopies: a Consume that was done with a message does not handle it again, however often it is delivered, unless by a consumer that was
// recreated, or for another that failed since, as after a crash that made the server forget the acknowledgement, or so much later that it has
// forgotten it too.
func (a *audit) checkCopies() {
	gone, deleted := a.plan.restart()
	for _, seq := range a.order {
		done := map[*run]*handing{}
		for _, h := range a.courses[seq].handings {
			if h.run == nil || h.run.kind != useConsume || a.plan.ackNone() {
				continue
			}
			before := done[h.run]
			if before != nil && before.over <= h.at && h.at < before.when+a.remembered(h.at)+lateMost && (!deleted || gone.at > h.at) &&
				!a.looksReset(before, h.at) {
				a.wrongWith(seq, "%v was handled by %s at %v though it was done with it at %v", h.deliveryID, h.life, h.at, before.when)
			}
			if h.final() && !h.dead {
				done[h.run] = h
			}
		}
	}
}

// looksReset reports whether the server crashed after the delivery of h, and by a time, and then the consumer's numbers of the deliveries to its
// life fell to half or less, as after a reset. A message that is still handled when the client sees the fall is remembered.
func (a *audit) looksReset(h *handing, by time.Duration) bool {
	return slices.ContainsFunc(a.crashes, func(at time.Duration) bool {
		before, next := a.around(h.life, at)
		return at >= h.sent && at <= by && before != nil && next != nil && next.fallsToHalf(before) && h.over <= a.arrives(next.at)
	})
}

// around are the last delivery to a life before a time, and the first one after it.
func (a *audit) around(life string, at time.Duration) (last, first *delivery) {
	for _, seq := range a.order {
		for _, d := range a.courses[seq].deliveries {
			switch {
			case d.life != life || d.kind != model.Delivered:
			case d.at < at && (last == nil || d.at >= last.at):
				last = d
			case d.at >= at && (first == nil || d.at < first.at):
				first = d
			}
		}
	}
	return last, first
}

// fallsToHalf reports whether a delivery has half of the consumer's number of the one before, or less.
func (d *delivery) fallsToHalf(before *delivery) bool { return d.deliverSeq <= (before.deliverSeq+1)/2 }

// A server that forgot a delivery, and a consumer that was reset, number a redelivery like the first delivery, or lower.
func TestRedeliveriesWithTheNumbersOfBefore(t *testing.T) {
	h := &handing{deliveryID: deliveryID{seq: 1, deliverSeq: 45, count: 1}, life: "P1L1", sent: 5, at: 10, verb: naked, when: 30}
	d := &delivery{deliveryID: deliveryID{seq: 1, deliverSeq: 39, count: 1}, life: "P1L1", at: 20}
	f := &course{handings: []*handing{h}, deliveries: []*delivery{{deliveryID: h.deliveryID, life: "P1L1", at: 5, got: h}, d}}
	a := &audit{schedule: &schedule{journal: newJournal(&plan{faults: []fault{{kind: faultCrash, at: 15}}})}}
	require.True(t, a.copied(f, d), "it went back with the delivery that was handed over")
	f.naks = []nak{{at: 31, deliverSeq: 45}, {at: 32, deliverSeq: 39}}
	n, _, _ := f.nakedBy("P1L1", nil, 20, 30, 40)
	require.Equal(t, f.naks[1], n, "the first is of a delivery from before")
	h.when = 19
	require.False(t, a.copied(f, d), "it came after that went back")

	d.at = 40
	require.True(t, a.forgotten(h, d), "in flight at the crash")
	h.when = 14
	require.False(t, a.forgotten(h, d), "settled before it")
	h.when, d.count = 30, 2
	require.False(t, a.forgotten(h, d), "the server knows of the delivery")

	h.run, h.at, h.when, h.verb, a.plan.consumer.AckWait = &run{keepAlive: true, end: time.Hour}, 60, 70, acked, time.Second
	f.deliveries[0].kind, d.kind, d.at, d.deliveryID = model.Delivered, model.Delivered, 60, h.deliveryID
	a.checkOverdue(f, f.deliveries[0], 50)
	require.Empty(t, a.wrongs, "of two deliveries with the same number, the handler may have had the second")
	h.at, h.verb, d.at, d.deliverSeq = 10, "", 20, 39
	a.checkOverdue(f, d, 50)
	require.Empty(t, a.wrongs, "it took the place of a delivery that the loop left unsettled")
	h.verb = acked
	a.checkOverdue(f, d, 50)
	require.NotEmpty(t, a.wrongs, "a redelivery of what was acknowledged is acknowledged too")
	h.verb, h.when, a.plan.faults = naked, 30, []fault{{kind: faultReset, at: 15}}
	for _, failed := range []bool{false, true} {
		h.failed, a.wrongs = failed, nil
		a.checkOverdue(f, d, 50)
		require.Equal(t, failed, len(a.wrongs) > 0, "the client hands back the redelivery, a handler the delivery from before the reset")
	}
	h.run, h.verb, d.at, d.deliverSeq = nil, "", 2, h.deliverSeq
	require.True(t, a.copied(f, d), "of two deliveries with the same number, a call may have returned the first")
	h.verb, h.run = kept, &run{stopped: time.Minute, end: time.Minute + 500*time.Millisecond}
	for at, waits := range map[time.Duration]bool{time.Minute + 200*time.Millisecond: false, h.run.end: true, h.run.end + 1: false} {
		a.wrongs = nil
		a.checkOverdue(f, f.deliveries[0], at)
		require.Equal(t, waits, len(a.wrongs) == 0, "a retry in place goes back at the end of its run: %v", at)
	}
}
