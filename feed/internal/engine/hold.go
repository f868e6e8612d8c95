package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/watch"
)

// phase is the state of a held partition.
type phase int

const (
	idle     phase = iota // nothing is done until an item is saved or may have been added
	toFetch               // it is in the list of its lane, and its items must be fetched
	fetching              // its items are read
	drained               // it is in the engine's list, and must be settled
	leaving               // it is in the engine's list, and must be released
	settling              // a statement runs that may end its lease
	gone                  // the lease is over
)

// hold is a lease of the watcher, with the state of its partition. A list can contain a hold twice, or one whose phase has changed since. Holds in
// another phase are skipped.
type hold struct {
	sqlstore.Taken
	since   time.Time
	trusted time.Time // when the lease ends, by this machine's monotonic clock, early
	ctx     context.Context
	cancel  context.CancelCauseFunc

	lane    *lane // of its gate
	running int   // begun, not saved

	after    int64 // the seq up to which items were fetched in this pass
	ended    bool  // the pass found the end
	redo     bool  // another pass is wanted
	inFlight map[string]struct{}
	// savedMeanwhile has the versions of items that were saved during a fetch, which may have read earlier versions.
	savedMeanwhile map[string]int64

	late   []*attempt // with results that were parked
	locked bool       // another transaction has the row locked, so nothing begins

	phase phase
	leave bool // it must be released
}

// next returns the phase of a hold for which no statement runs. The first line that applies counts:
//
//	given back, nothing in flight           leaving
//	given back, or the row is locked        idle, until that is over
//	the pass goes on, with room for more    toFetch
//	the pass has ended, nothing in flight   drained
//	otherwise                               the same
func (h *hold) next(room int) phase {
	inFlight := len(h.inFlight)
	switch {
	case h.leave && inFlight == 0:
		return leaving
	case h.leave, h.locked:
		return idle
	case !h.ended && inFlight < room:
		return toFetch
	case h.ended && inFlight == 0:
		return drained
	}
	return h.phase
}

// consider puts a hold into the list of its next phase, if no statement runs for it.
func (e *Engine) consider(h *hold) {
	if h.phase != idle && h.phase != toFetch && h.phase != drained {
		return
	}
	if h.ended && h.redo && !h.leave {
		h.ended, h.redo, h.after = false, false, 0
	}
	was := h.phase
	if h.phase = h.next(2 * e.PartitionConcurrency); h.phase == was {
		return
	}
	switch h.phase {
	case leaving:
		e.leaving = append(e.leaving, h)
	case toFetch:
		h.lane.toFetch = append(h.lane.toFetch, h)
	case drained:
		e.drained = append(e.drained, h)
	case idle, fetching, settling, gone:
	}
}

// forget removes a hold. If the cause is errLost, it cancels the handlers.
func (e *Engine) forget(h *hold, cause error) {
	if h.phase == gone {
		return
	}
	if cause != nil {
		e.tally.LeasesLost.Add(1)
		e.Log.Warn("feed: lease lost", "partition", h.ID)
	}
	h.phase = gone
	h.cancel(cause)
	delete(e.held, h.ID)
	e.tally.Leases.Add(-1)
	e.unqueue(h)
}

// unqueue removes a partition's items that have not begun from the queues.
func (e *Engine) unqueue(h *hold) {
	for _, l := range e.lanes {
		l.queue = slices.DeleteFunc(l.queue, func(a *attempt) bool {
			if a.h == h {
				delete(h.inFlight, a.item.ID)
			}
			return a.h == h
		})
	}
}

// relinquish releases a partition after the items that have begun.
func (e *Engine) relinquish(h *hold) {
	if h.leave || h.phase == gone {
		return
	}
	h.leave = true
	e.unqueue(h)
	e.consider(h)
}

// fetch reads items ahead, as many as may begin, of the partitions that want some.
func (e *Engine) fetch(now time.Time) {
	if e.fetching > 0 || e.stopping || now.Before(e.timers.fetch) {
		return
	}
	var wants []sqlstore.Want
	for i := range e.lanes {
		wants = e.lanes[(e.turn+i)%len(e.lanes)].wants(e, wants)
	}
	if len(wants) == 0 {
		return
	}
	e.async(&e.fetching, func(ctx context.Context) func() {
		items, err := e.tables.Fetch(ctx, e.terms, wants)
		return func() { e.fetched(wants, items, err) }
	})
}

// wants appends the requests of a lane for items.
func (l *lane) wants(e *Engine, wants []sqlstore.Want) []sqlstore.Want {
	most := l.most(e.Concurrency)
	free := 2*most - l.active - len(l.queue)
	n := min(len(l.toFetch), FetchMost-len(wants), free)
	if n <= 0 || (len(l.queue) > 0 && 4*free < most) {
		return wants
	}
	limit := min((free+n-1)/n, max(1, e.fetches.of(fetchRows)/n))
	for _, h := range l.toFetch[:n] {
		if h.phase != toFetch {
			continue
		}
		h.phase, h.savedMeanwhile = fetching, map[string]int64{}
		w := sqlstore.Want{
			Lease: h.Lease, After: h.after, Limit: min(limit, 2*e.PartitionConcurrency-len(h.inFlight)),
			Bytes: max(1, e.fetches.of(fetchBytes)/n),
		}
		if h.after == 0 {
			// A pass from the beginning also reads the items in flight.
			w.Limit += len(h.inFlight)
		}
		wants = append(wants, w)
	}
	l.toFetch = append(l.toFetch[:0], l.toFetch[n:]...)
	return wants
}

func (e *Engine) fetched(wants []sqlstore.Want, items []sqlstore.Item, err error) {
	e.fetches.note(err)
	if e.failing("fetch", err) {
		e.timers.fetch, items = time.Now().Add(e.pause), nil
	}
	rows, size := make(map[string]int, len(wants)), make(map[string]int, len(wants))
	for _, it := range items {
		rows[it.PartitionID]++
		size[it.PartitionID] += len(it.Data)
		h := e.held[it.PartitionID]
		if h == nil || h.leave || h.locked || h.phase != fetching { // it was released, and may have been leased again
			continue
		}
		h.after = max(h.after, it.Seq)
		if _, known := h.inFlight[it.ID]; known {
			continue
		}
		if version, saved := h.savedMeanwhile[it.ID]; saved && it.Version <= version {
			continue
		}
		h.inFlight[it.ID] = struct{}{}
		h.lane = e.lanes.of(it.Gate)
		h.lane.queue = append(h.lane.queue, &attempt{h: h, lane: h.lane, item: it})
	}
	for _, w := range wants {
		if h := e.held[w.ID]; h != nil && h.phase == fetching {
			h.phase, h.savedMeanwhile = idle, nil
			h.ended = err == nil && rows[h.ID] < w.Limit && size[h.ID] < w.Bytes
			e.consider(h)
		}
	}
}

// settle decides on partitions that have nothing left at their gate.
func (e *Engine) settle() {
	for len(e.drained) > 0 && e.settling < settleMost {
		h := e.drained[0]
		e.drained = append(e.drained[:0], e.drained[1:]...)
		if h.phase != drained {
			continue
		}
		h.phase = settling
		e.async(&e.settling, func(ctx context.Context) func() {
			result, gate, err := e.tables.Settle(ctx, e.terms, h.Lease)
			return func() { e.settled(h, result, gate, err) }
		})
	}
}

func (e *Engine) settled(h *hold, result sqlstore.Outcome, gate int, err error) {
	if h.phase == gone {
		return
	}
	h.phase = idle
	switch {
	case sqlstore.Locked(err), e.failing("settle", err):
		e.timers.fetch = time.Now().Add(e.pause)
		h.ended = false
		e.consider(h)
	case result == sqlstore.Again || result == sqlstore.Passed:
		if result == sqlstore.Passed {
			h.lane = e.lanes.of(gate)
			e.tally.GatesPassed.Add(1)
			e.Log.Debug("feed: gate passed", "partition", h.ID, "gate", gate)
		}
		h.ended, h.redo, h.after, h.Over = false, false, 0, false
		e.consider(h)
	case result == sqlstore.Lost:
		e.forget(h, errLost)
	default:
		switch result {
		case sqlstore.Blocked:
			e.tally.GatesBlocked.Add(1)
			e.Log.Warn("feed: gate blocked by failed items", "partition", h.ID, "gate", gate)
		case sqlstore.Closed:
			e.Log.Info("feed: partition complete", "partition", h.ID)
		}
		full := len(e.held) >= e.MaxPartitions
		e.forget(h, nil)
		if full || h.redo {
			e.timers.soon()
		}
	}
}

// giveBack releases the leases that must be released, in one statement.
func (e *Engine) giveBack() {
	holds := e.leaving
	e.leaving = nil
	var leases []sqlstore.Taken
	for _, h := range holds {
		if h.phase == leaving {
			h.phase = settling
			leases = append(leases, h.Taken)
		}
	}
	if len(leases) == 0 {
		return
	}
	e.async(&e.releasing, func(ctx context.Context) func() {
		err := e.tables.Release(ctx, e.terms, leases)
		if err != nil {
			_ = watch.Sleep(ctx, errorPause) // when ctx ends, the error is noted at once
		}
		return func() {
			failed := e.failing("release", err)
			for _, h := range holds {
				if !failed {
					e.forget(h, nil)
				} else if h.phase == settling {
					h.phase = idle
					e.consider(h)
				}
			}
			e.timers.soon()
		}
	})
}

// failing notes an error of the database, and sets the pause before the next statement. It reports whether there was one.
func (e *Engine) failing(what string, err error) bool {
	if err == nil {
		e.pause = 0
		return false
	}
	e.pause = min(max(2*e.pause, errorPause), maxPause)
	e.tally.DatabaseErrors.Add(1)
	if e.db.Err() == nil {
		e.Log.Error("feed: database", "statement", what, "error", oneLine(err), "pause", e.pause)
	}
	return true
}

// oneLine returns an error without line breaks, for a log. The error of a PostgreSQL that does not answer has a line for each address.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
