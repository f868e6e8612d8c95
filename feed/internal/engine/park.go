package engine

import (
	"context"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/watch"
)

// A result is parked that cannot be saved while others can: another transaction has its partition or its row locked, or the database takes
// nothing of the item, not even a failed attempt. It is saved by a statement of its partition alone, which may wait.

// park keeps a result for such a statement, which is run at once the first time, and then after a pause.
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
		_ = watch.Sleep(ctx, maxPause) // at its end the engine ends
		return func() { e.parked = append(e.parked, h) }
	})
}

// uncount takes an attempt out of the items that have begun and are not saved.
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

// rest has nothing begin in a partition that another transaction has locked: its results could not be saved.
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

// bound makes statements smaller where one took too long, and larger again where several did not.
type bound struct{ halved, fine int }

const (
	halvedMost = 20
	growAfter  = 50
)

// of is as much of n as a statement may have, at least 1.
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
