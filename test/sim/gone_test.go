package sim

import (
	"slices"
	"strconv"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// checkDead: what was given up with a dead letter is in the stream of the dead
// letters exactly once, and nothing else is, but what a fault took from the client
// between the copy and the end of the original.
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
		if f := a.fates[seq]; f == nil || !f.diedOnce() && !a.abandoned(f) {
			a.wrongWith(seq, "has a dead letter and was never given up")
		}
	}
	for _, seq := range a.order {
		if f := a.fates[seq]; f.as == model.Termed && f.diedOnly() && copies[seq] == 0 {
			a.wrongWith(seq, "is terminated and has no dead letter")
		}
	}
}

// abandoned reports whether a Consume that ended may have had the last delivery of a
// message and made a dead letter of it, for no handler had time.
func (a *audit) abandoned(f *fate) bool {
	return slices.ContainsFunc(f.deliveries, func(d *delivery) bool { return a.abandons(d) })
}

func (a *audit) abandons(d *delivery) bool {
	most := a.plan.consumer.MaxDeliver
	return most > 0 && d.got == nil && d.count >= uint64(most) && slices.ContainsFunc(a.runs, func(r *run) bool {
		return r.kind == useConsume && r.dead && r.life == d.life && d.at <= r.end
	})
}

// diedOnce reports whether a handler gave a message up with a dead letter.
func (f *fate) diedOnce() bool {
	for _, h := range f.handings {
		if h.dead {
			return true
		}
	}
	return false
}

// diedOnly reports whether nobody terminated a message in another way.
func (f *fate) diedOnly() bool {
	for _, h := range f.handings {
		if h.verb == termed && !h.dead {
			return false
		}
	}
	return f.diedOnce()
}

// noticedWithin is how long a deletion lasts that no stream can miss: the longest
// handler may fill its window, and then its pull waits to be tried again.
const noticedWithin = handlerMost + recovery

// checkGone: a stream that does not wait for its consumer ends when that is
// deleted.
func (a *audit) checkGone() {
	gone, ok := a.plan.deletion()
	if !ok || gone.length < noticedWithin || a.plan.model.Lose > 0 {
		return
	}
	for _, o := range a.outages {
		if o.from < gone.at && o.to > gone.at {
			return // it is not the only trouble
		}
	}
	for _, r := range a.runs {
		if !r.awaits && r.from < gone.at && r.end > gone.at+noticedWithin && !r.gone {
			a.wrong("%s: %s of %v goes on until %v though its consumer was deleted at %v for %v", r.life, r.kind, r.from, r.end, gone.at, gone.length)
		}
	}
}
