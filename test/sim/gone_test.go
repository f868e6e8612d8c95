package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// checkDead: what was given up with a dead letter is in the stream of the dead letters exactly once, and nothing else is, but what a fault took
// from the client between the copy and the end of the original.
func (a *audit) checkDead() {
	copies := map[uint64]int{}
	for i := range a.model.Messages(deadStream) {
		text := a.model.Header(deadStream, uint64(i+1), jetpull.HeaderDeadSequence)
		seq, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			a.wrong("a dead letter of sequence %q", text)
			continue
		}
		copies[seq]++
	}
	for seq, n := range copies {
		if n > 1 {
			a.wrongWith(seq, "has %d dead letters", n)
		}
		if f := a.courses[seq]; f == nil || !f.died() {
			a.wrongWith(seq, "has a dead letter and was never given up")
		}
	}
	for _, seq := range a.order {
		switch f := a.courses[seq]; {
		case copies[seq] > 0 || !f.died():
		case f.as == model.Termed && !slices.ContainsFunc(f.handings, func(h *handing) bool { return h.verb == termed && !h.dead }):
			a.wrongWith(seq, "is terminated and has no dead letter")
		case f.as == model.Exceeded && a.hadTime(f):
			a.wrongWith(seq, "was delivered for the last time and has no dead letter")
		}
	}
}

// died reports whether a message was given up with a dead letter, or may have been.
func (f *course) died() bool {
	return slices.ContainsFunc(f.handings, func(h *handing) bool { return h.dead || h.mayDie })
}

// hadTime reports whether a message was given up at its last delivery by a Consume that had to wait until the dead letter was stored, perhaps until
// all is calm. One that is killed, or whose drain is over, does not: a dead letter that was lost is tried again after seconds, and the server may
// have given the message up by then, if its handler failed so late that no report that it is in progress came within AckWait.
func (a *audit) hadTime(f *course) bool {
	h := f.handings[len(f.handings)-1]
	_, wait := a.plan.ackWaits()
	if !h.dead || a.excused(f.settled-wait, f.settled) && h.run.end <= a.quiet {
		return false
	}
	again := slices.ContainsFunc(f.deliveries, func(d *delivery) bool { return d.count > h.count })
	return !again && h.run.end > f.settled && !a.killedAt(h.life, h.run.end) &&
		(h.run.stopped == 0 || h.run.end < h.run.stopped+h.run.drain) && h.when <= f.settled &&
		!slices.ContainsFunc(a.changes, func(c change) bool { return c.at >= h.when-limitsRead && c.at <= f.settled })
}

// noticedWithin is how long a deletion lasts that no stream can miss that holds nothing:
// the longest handler may fill its window, and then its pull waits to be tried again.
const noticedWithin = handlerMost + recovery

// retries reports whether a run may have had its window full of messages that it was to retry in place at a time.
func (a *audit) retries(r *run, at time.Duration) bool {
	return slices.ContainsFunc(a.handings, func(h *handing) bool {
		return h.run == r && h.verb == kept && h.over >= at-retryMost && h.over <= at+noticedWithin
	})
}

// busy is until when a run handled what it held when the consumer was deleted. With that
// its window may be full, of bytes too, and then it pulls nothing.
func (a *audit) busy(r *run, gone time.Duration) time.Duration {
	until := gone
	for _, h := range a.handings {
		if h.run == r && h.sent <= gone {
			until = max(until, h.over)
		}
	}
	return until
}

// noticed is until when a run has to notice that the consumer was deleted. A stall or an outage meanwhile gives it as much time again.
func (a *audit) noticed(r *run, gone time.Duration) time.Duration {
	by := a.busy(r, gone) + noticedWithin
	for _, s := range slices.Concat(a.plan.stalls, a.outages) {
		if s.from <= by && s.to >= gone {
			by = max(by, s.to+noticedWithin)
		}
	}
	return by
}

// checkGone: a stream that does not wait for its consumer ends when that is deleted.
func (a *audit) checkGone() {
	gone, ok := a.plan.deletion()
	if !ok || gone.length < noticedWithin {
		return
	}
	for _, r := range a.runs {
		by := a.noticed(r, gone.at)
		if !r.awaits && !a.retries(r, gone.at) && r.from < gone.at && by < gone.at+gone.length && r.end > by && !r.gone {
			a.wrong("%s: %s of %v goes on until %v though its consumer was deleted at %v for %v", r.life, r.kind, r.from, r.end, gone.at, gone.length)
		}
	}
}

// checkReset: what a Consume had settled before the consumer was reset it handles again. It need not notice a reset by a delivery whose
// number is more than half of the one before, which others may have got.
func (a *audit) checkReset() {
	i := slices.IndexFunc(a.history, func(e model.Event) bool { return e.Kind == model.Reset })
	if i < 0 {
		return
	}
	reset := a.since(a.history[i].At)
	for _, seq := range a.order {
		f := a.courses[seq]
		if f.as != model.Acked || f.handedSince(a.sentBefore(reset)) {
			continue
		}
		settles := slices.DeleteFunc(slices.Clone(f.deliveries), func(d *delivery) bool { // by which it may have been acknowledged
			return d.kind != model.Delivered || d.at < reset || d.at > f.settled
		})
		if len(settles) > 0 && !slices.ContainsFunc(settles, func(d *delivery) bool { return !a.seesReset(d.life, reset, f.settled) }) {
			a.wrongWith(seq, "was acknowledged at %v though no handler had it since the consumer was reset at %v", f.settled, reset)
		}
	}
}

// seesReset reports whether a life has to notice a reset: its first delivery afterwards shows it to a single Consume that is open since before, and
// until a time, and the last delivery before it was not lost with the link.
func (a *audit) seesReset(life string, reset, until time.Duration) bool {
	before, next := a.around(life, reset)
	shows := before != nil && next != nil && next.fallsToHalf(before) && next.count == 1 && next.seq <= before.seq
	return shows && !a.excusedDelivery(before) && slices.ContainsFunc(a.runs, func(r *run) bool {
		return r.life == life && r.kind == useConsume && r.single && r.from <= before.at && r.end >= until
	})
}

// sentBefore is when an acknowledgement that arrives at a time was sent at the earliest.
func (a *audit) sentBefore(at time.Duration) time.Duration {
	from := at
	for _, o := range slices.Concat(a.outages, a.plan.stalls) {
		if o.from <= at && at <= o.to+a.plan.trip() {
			from = min(from, o.from)
		}
	}
	return from - a.plan.trip() - batched
}

// handedSince reports whether a message was handed over at or after a time, or was with somebody then.
func (f *course) handedSince(at time.Duration) bool {
	return slices.ContainsFunc(f.handings, func(h *handing) bool { return !h.done || h.at >= at || h.over >= at || h.when >= at })
}
