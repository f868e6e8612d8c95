package engine

import (
	"context"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/watch"
)

// A result is parked if it cannot be saved while others can: another transaction has locked its partition or its row, or the database accepts nothing
// for the item, not even a failed attempt. A statement for its partition alone, which may wait, saves it.

// park keeps a result for such a statement, which runs at once the first time, and later after a pause.
func (a *attempt) park(e *Engine) {
	h, again := a.h, a.parked
	if a.result.Locked {
		h.rest(e)
	}
	if a.refused || a.result.Locked && time.Now().After(h.trusted) { // it may wait for ever, and must not keep others from beginning
		a.uncount(e)
	}
	a.parked = true
	if h.late = append(h.late, a); len(h.late) > 1 {
		return
	}
	if !again {
		e.parked = append(e.parked, h)
		return
	}
	e.async(&e.resting, func(ctx context.Context) func() {
		_ = watch.Sleep(ctx, maxPause) // when it ends, the engine ends
		return func() { e.parked = append(e.parked, h) }
	})
}

// uncount removes an attempt from the count of items that are begun and not saved.
func (a *attempt) uncount(e *Engine) {
	if !a.uncounted {
		a.uncounted = true
		e.active--
		e.tally.Running.Add(-1)
	}
}

// retry saves parked results, of a few partitions at a time.
func (e *Engine) retry() {
	for len(e.parked) > 0 && e.retrying < retryMost {
		late := e.parked[0].late
		e.parked[0].late = nil
		e.parked = append(e.parked[:0], e.parked[1:]...)
		e.async(&e.retrying, func(context.Context) func() {
			t := e.terms
			t.Patient = true
			worker{e}.write(late, t)
			return func() { e.saved(late) }
		})
	}
}

// rest lets no item of a partition begin while another transaction has locked it, because its results could not be saved.
func (h *hold) rest(e *Engine) {
	h.locked = true
	e.unqueue(h)
	e.consider(h)
}

// resume ends a rest. The items that were taken out of the queue are read again.
func (h *hold) resume(e *Engine) {
	if h.locked {
		h.locked, h.ended, h.redo, h.after = false, false, h.phase == fetching, 0
		e.consider(h)
	}
}

// bound makes statements smaller when one took too long, and larger again when several did not.
type bound struct{ halved, fine int }

const (
	halvedMost = 20
	growAfter  = 50
)

// of returns how much of n a statement may have, at least 1.
func (b *bound) of(n int) int { return max(1, n>>b.halved) }

func (b *bound) note(err error) {
	switch {
	case sqlstore.Slow(err):
		b.halved, b.fine = min(b.halved+1, halvedMost), 0
	case err == nil:
		if b.fine++; b.fine == growAfter {
			b.halved, b.fine = max(0, b.halved-1), 0
		}
	}
}
