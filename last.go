package jetpull

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A message at the last delivery that the consumer's MaxDeliver allows must not go
// back: nobody would get it again. When Consume ends it handles those that it has
// read ahead, within DrainTimeout. What it cannot becomes a dead letter, or an error.

// errNotHandled is why a message is given up that no handler has had.
var errNotHandled = errors.New("jetpull: Consume ended before a handler had time for it")

// keepLast takes what must not go back out of what was not started when the queue
// stops, and leaves it to the workers: one after the other where it stands in
// lines. The lock is held.
func (d *dispatch) keepLast(left []held, busy map[string]bool) (back []held) {
	if !d.finishes || d.most == 0 || d.fence != 0 {
		return left
	}
	for _, h := range left {
		if !d.isLast(h.m) {
			back = append(back, h)
			continue
		}
		if !d.lined || !busy[h.key] {
			h.released = true // no more is to come
			d.ready.push(h)
			busy[h.key] = d.lined
			if d.lined {
				d.addLine(h.key)
			}
			continue
		}
		l := d.lines[h.key]
		if l == nil {
			l = d.addLine(h.key)
		}
		d.letWait(&h)
		l.queue.push(h)
	}
	return back
}

// inHand are the keys whose message is with a worker that has not settled it. One
// that has may not have let go of its slot yet. The lock is held.
func (d *dispatch) inHand() map[string]bool {
	busy := map[string]bool{}
	for key, l := range d.lines {
		busy[key] = l.blocked == 0 && !l.idle
	}
	for _, h := range d.ready.all() {
		busy[h.key] = false
	}
	for _, h := range d.beside { // in the place of one that is settled
		busy[h.key] = d.isLast(h.m)
	}
	return busy
}

// warnOfLast logs which messages go back although they were delivered for the last
// time, as where the loop of [Subscription.Messages] ends.
func (st *stream) warnOfLast(left []held) {
	if st.sub.ackNone.Load() {
		return
	}
	var seqs []uint64
	st.queue.mu.Lock()
	defer st.queue.mu.Unlock()
	for _, h := range left {
		if st.queue.isLast(h.m) {
			seqs = append(seqs, h.m.Sequence())
		}
	}
	if len(seqs) > 0 {
		st.log.Warn("jetpull: messages were handed back at their last delivery and do not come again: MaxDeliver counts each stop",
			"messages", len(seqs), "sequences", seqs[:min(len(seqs), sequencesTold)])
	}
}

// abandon gives up a message at its last delivery because the drain is over: ctx,
// the handlers', is cancelled.
func (st *stream) abandon(ctx context.Context, h held) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), st.graceEnds())
	defer cancel()
	st.abandoned.Add(1)
	d := deadMessage{held: h, attempts: int(h.m.Delivered()), subject: st.set.streaming.deadLetter, reason: headerText(errNotHandled.Error())}
	if d.subject != "" && ctx.Err() == nil && st.bury(ctx, &d) == nil {
		st.settled(h)
		return
	}
	st.report(fmt.Errorf("%w, and the server does not deliver it again: take stream sequence %d from stream %q; a longer DrainTimeout or a larger MaxDeliver prevents it", errNotHandled, h.m.Sequence(), st.sub.stream))
	st.settledBy(h, h.m.Nak())
}

// graceEnds is when Consume returns whatever still runs, a little before that.
func (st *stream) graceEnds() time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.grace.IsZero() {
		st.grace = time.Now().Add(drainGrace * 4 / 5)
	}
	return st.grace
}
