package sim

import (
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

// conclude determines the result of a message whose handlers have failed: given up, retried in place, or back at the server. The handlers do not see
// the number of its attempts, because a redelivery can have replaced the delivery that they got.
func (a *audit) conclude(f *course) {
	last, retries, sure := map[*run]*handing{}, map[*run]int{}, map[*run]int{}
	for i, h := range f.handings {
		before := last[h.run]
		if h.run == nil || h.run.kind != useConsume {
			continue
		}
		last[h.run] = h
		if h.verb != "" || !h.failed {
			retries[h.run], sure[h.run] = 0, 0
			continue
		}
		if before != nil && (before.deliverSeq != h.deliverSeq || f.sentWithin(h.life, h.deliveryID, before.at, h.at)) {
			sure[h.run] = 0 // it may have been handed back meanwhile, and a recreated consumer begins its numbers again
		}
		h.least, h.most = int(h.count)+sure[h.run], int(h.count)+retries[h.run]
		if a.countsOwn(h) {
			h.least = 1 + sure[h.run]
		}
		for _, d := range f.deliveries {
			if d.life == h.life && d.kind == model.Delivered && d.at <= h.when+judged && (d.got == nil || d.got.run == h.run) {
				h.most = max(h.most, int(d.count)+retries[h.run])
			}
		}
		again, until := false, time.Duration(math.MaxInt64) // what ends later, ends by another handler
		if n := slices.IndexFunc(f.handings[i+1:], func(o *handing) bool { return o.run == h.run }); n >= 0 {
			next := f.handings[i+1+n]
			again, until = next.deliveryID == h.deliveryID && !f.sentWithin(h.life, h.deliveryID, h.at, next.at), next.at-1
		}
		back := until
		if n, _, ok := f.nakedBy(h.life, nil, h.sent, h.when, until); ok {
			back = n.at
		}
		low, high := a.limits(h)
		h.mayDie = !h.cancelled && h.run.dead && h.most >= low
		switch {
		case h.cancelled:
			h.verb = naked
		case h.least >= high, !again && h.most >= low && f.endedBy(h, back, until):
			h.verb, h.dead = termed, h.run.dead
		case h.run.ordered && (again || h.run.stopped == 0 || h.when < h.run.stopped):
			h.verb = kept
			retries[h.run]++
			sure[h.run]++
		default:
			h.verb = naked
		}
	}
}

// endedBy reports whether a message may have been terminated as the result of h, until a time or before it went back. A redelivery that comes
// in the drain goes back alone: then the delivery that h has may be terminated later.
func (f *course) endedBy(h *handing, back, until time.Duration) bool {
	return slices.ContainsFunc(f.ended, func(e endedAt) bool {
		return e.at >= h.when && (e.at <= back || e.at <= until && e.deliverSeq == h.deliverSeq) &&
			(e.deliverSeq == 0 || slices.ContainsFunc(f.deliveries, func(d *delivery) bool {
				return d.life == h.life && d.deliverSeq == e.deliverSeq
			}))
	})
}

// countsOwn reports whether the deliveries to others may not count as attempts: see MaxAttempts. A handler that hands its message back
// itself makes one of its own deliveries another's.
func (a *audit) countsOwn(h *handing) bool {
	return h.run.ordered && a.plan.pinned() && slices.ContainsFunc(a.configsOf(h.life, h.when+judged), func(c jetstream.ConsumerConfig) bool {
		return c.MaxDeliver <= 0
	})
}

// nakedBy returns the first nak that came for a delivery to a life that was sent then or later, and by a run, if one is given. The numbers do not
// show which is later: a recreated consumer, one that was reset and a server that crashed give lower ones. It is not sure if its number was given more
// than once.
func (f *course) nakedBy(life string, r *run, sent, from, to time.Duration) (first nak, sure, ok bool) {
	i := slices.IndexFunc(f.naks, func(n nak) bool {
		return n.at >= from && n.at <= to && slices.ContainsFunc(f.deliveries, func(d *delivery) bool {
			return d.life == life && d.at >= sent && d.at <= n.at && d.deliverSeq == n.deliverSeq &&
				(r == nil || d.got == nil && r.single || d.got != nil && d.got.run == r)
		})
	})
	if i < 0 {
		return nak{}, false, false
	}
	given := 0
	for _, d := range f.deliveries {
		if d.deliverSeq == f.naks[i].deliverSeq && d.at <= f.naks[i].at {
			given++
		}
	}
	return f.naks[i], given == 1, true
}

// judged is how long after its handler a failed message is judged at the latest: the client may read the consumer first.
const judged = 500 * time.Millisecond

// sentWithin reports whether the server sent a life the same number again between two times.
func (f *course) sentWithin(life string, id deliveryID, from, to time.Duration) bool {
	return slices.ContainsFunc(f.deliveries, func(d *delivery) bool { return d.life == life && d.deliveryID == id && d.at > from && d.at <= to })
}

// limits are the least and the most attempts after which h may have been given up.
func (a *audit) limits(h *handing) (low, high int) {
	low = math.MaxInt
	from := a.bound(h.life)
	if !a.excused(h.when-limitsRead, h.when+judged) { // it has read the consumer
		from = max(from, h.when-limitsRead)
	}
	if gone, ok := a.plan.deletion(); ok && h.run.from < gone.at+gone.length {
		from = min(from, gone.at-limitsRead) // a run ends with its consumer, by the configuration that it had
	}
	for _, c := range a.configs(from, h.when+judged) {
		most := h.run.most
		if most == 0 && h.run.ordered {
			most = c.MaxDeliver // the server's count does not grow with retries in place
		} else if most > 0 && c.MaxDeliver > 0 {
			most = min(most, c.MaxDeliver) // it is the last delivery
		}
		if most <= 0 {
			most = math.MaxInt
		}
		low, high = min(low, most), max(high, most)
	}
	return low, high
}

// configsOf are those that a life may go by at a time: the one that it subscribed with, and what came since.
func (a *audit) configsOf(life string, by time.Duration) []jetstream.ConsumerConfig {
	return a.configs(a.bound(life), by)
}

// delays are the shortest and the longest time after which h is to be tried again.
func (a *audit) delays(h *handing) (low, high time.Duration) {
	alone := func(c jetstream.ConsumerConfig) bool {
		return c.PriorityPolicy == jetstream.PriorityPolicyPinned && c.MaxDeliver <= 0
	}
	if h.run.ordered && h.verb == naked && slices.ContainsFunc(a.configsOf(h.life, h.when+judged), alone) { // at the end of the run
		defer func() { low = 0 }()
		if !slices.ContainsFunc(a.configsOf(h.life, h.when+judged), func(c jetstream.ConsumerConfig) bool { return !alone(c) }) {
			return 0, 0
		}
	}
	if h.cancelled {
		return 0, 0
	}
	switch {
	case h.after >= 0 && h.mayDie: // its dead letter may not have been stored, and is tried again after a second at least
		return min(h.after, time.Second), h.after
	case h.after >= 0:
		return h.after, h.after
	}
	low = math.MaxInt64
	for _, c := range a.configsOf(h.life, h.when+judged) {
		for n := h.least; n <= h.most; n++ {
			delay := min(time.Minute, time.Second<<min(n-1, 10))
			spread := delay / 5
			if delays := h.run.delays; len(delays) > 0 {
				delay, spread = delays[min(n, len(delays))-1], 0
			} else if len(c.BackOff) > 0 {
				delay, spread = c.BackOff[min(n, len(c.BackOff))-1], 0
			}
			low, high = min(low, delay-spread), max(high, delay+spread)
		}
	}
	return low, high
}

// checkDelays: what goes back to the server goes with the delay that it is to have.
func (a *audit) checkDelays() {
	for _, seq := range a.order {
		f := a.courses[seq]
		for _, h := range f.handings {
			if !h.failed || h.verb != naked || h.mayDie { // its dead letter may not have been stored
				continue
			}
			low, high := a.delays(h)
			n, sure, ok := f.nakedBy(h.life, h.run, h.sent, h.when, h.when+a.plan.trip())
			if ok && sure && n.taken && !a.otherBackOff(f, h, n) && (n.wait < low || n.wait > high) {
				a.wrongWith(seq, "was handed back by %s with a delay of %v, not %v to %v", h.life, n.wait, low, high)
			}
		}
	}
}

// otherBackOff reports whether the server may have counted a delay from another entry of BackOff than the client knew of: it has another
// configuration, or had delivered the message again, or paused before a redelivery, by replay at original speed, which it had counted.
func (a *audit) otherBackOff(f *course, h *handing, n nak) bool {
	all := a.configsOf(h.life, n.at)
	crashed := func(at time.Duration) bool { return at >= h.sent-crashForgets && at <= n.at } // and counts from one again
	reset := func(x fault) bool { return x.kind == faultReset && crashed(x.at) }
	again := func(d *delivery) bool { return d.deliverSeq > n.deliverSeq && d.at <= n.at+a.plan.trip() }
	return slices.ContainsFunc(all, func(c jetstream.ConsumerConfig) bool { return !slices.Equal(c.BackOff, all[0].BackOff) }) ||
		len(all[0].BackOff) > 0 && (slices.ContainsFunc(a.crashes, crashed) || slices.ContainsFunc(a.plan.faults, reset) ||
			slices.ContainsFunc(f.deliveries, again) ||
			len(a.plan.before) > 0 && slices.ContainsFunc(f.overdue, func(at time.Duration) bool { return at <= n.at }))
}

// checkHeld: a message that is retried in place is handled before others of its key, not before its delay is over, and does not go back
// meanwhile, until its run ends or goes by another configuration, or the consumer that delivered it is deleted.
func (a *audit) checkHeld(line []*handing) {
	gone, deleted := a.plan.deletion()
	for i, failed := range line {
		if failed.verb != kept {
			continue
		}
		next, until := &handing{}, failed.run.end
		if i+1 < len(line) {
			next, until = line[i+1], line[i+1].at
		}
		if next.seq != failed.seq {
			until += a.plan.trip()
		} else {
			until-- // a nak of its handler's own may be there in no time
		}
		n, sure, back := a.courses[failed.seq].nakedBy(failed.life, failed.run, failed.sent, failed.over, until)
		if back {
			if sure && (!deleted || n.at < gone.at) && (failed.run.stopped == 0 || failed.run.stopped > n.at) && !a.shortened(failed.life, n.at) {
				a.wrongWith(failed.seq, "its handler failed at %v, and it went back at %v though it was to be retried in place", failed.over, n.at)
			}
			continue
		}
		low, _ := a.delays(failed)
		switch {
		case i+1 == len(line), a.shortened(failed.life, next.at):
		case failed.run.stopped > 0 && failed.run.stopped <= next.at && a.isLast(next): // it is handled in the drain
		case next.seq != failed.seq:
			a.wrongWith(next.seq, "its handler began at %v though #%d of its key failed at %v and was not retried", next.at, failed.seq, failed.over)
		case next.at < failed.over+low:
			a.wrongWith(next.seq, "its handler began at %v though it failed at %v and was to be retried after %v", next.at, failed.over, low)
		}
	}
}

// isLast reports whether h may be the last delivery that MaxDeliver allows: a client goes by the highest count, also after a reset.
func (a *audit) isLast(h *handing) bool {
	return slices.ContainsFunc(a.configsOf(h.life, h.at), func(c jetstream.ConsumerConfig) bool {
		return c.MaxDeliver > 0 && slices.ContainsFunc(a.courses[h.seq].deliveries, func(d *delivery) bool {
			return d.life == h.life && d.at <= h.at && d.count >= uint64(c.MaxDeliver)
		})
	})
}

// checkPins: a client that ended gave up its pin, as does one whose last Messages or Consume ended, unless something was broken then, or the
// server is too far away.
func (a *audit) checkPins() {
	if a.plan.trip() > pinTrip {
		return
	}
	for life, end := range a.lives {
		if end.killed == 0 {
			a.checkPin(life, end.closed)
		}
	}
	for _, r := range a.runs {
		end := a.lives[r.life]
		inTime := r.kind == useMessages || r.end <= r.stopped+r.drain // or else a message was not settled
		if (r.kind == useMessages || r.pulled) && r.alone && inTime && end != nil && end.killed == 0 && r.stopped > 0 {
			a.checkPin(r.life, r.end)
		}
	}
}

// checkPin looks for a pin of a life that was given long before a time and is not free then.
func (a *audit) checkPin(life string, by time.Duration) {
	held, mine, id := time.Duration(0), false, ""
	for _, e := range a.history {
		switch at := a.since(e.At); {
		case at > by:
		case e.Kind == model.Pinned:
			held, mine, id = 0, lifeOf(e.Reply) == life, e.Text
		case e.Kind == model.Unpinned, e.Kind == model.LeaderLost, e.Kind == model.Deleted:
			held, mine = 0, false
		case e.Kind == model.Delivered && mine && held == 0 && e.Text == id:
			held = at // with its first message it learns of it; one on its way may still have the pin before
		}
	}
	if held > 0 && held < by-pinSlack && !a.excused(held, held) && !a.excused(by-pinSlack, by) {
		a.wrong("%s ended at %v and still has the pin that it got at %v", life, by, held)
	}
}

// pinTrip is the longest round trip in which a call that ends gives up its pin.
const pinTrip = 150 * time.Millisecond

// pinSlack is how long before its end a client may have got a pin of which it need not have known.
const pinSlack = time.Second
