package engine

import (
	"context"
	"slices"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// With MaxCrashes, the begin of an attempt is stored before its handler begins if the item may have ended a process: its partition was taken over
// from a watcher that did not return it, or a stored attempt did not end. Each saved result clears the stored begins.

// suspected reports whether an attempt at the item was stored and did not end. If there are too many, no handler gets the item.
func (a *attempt) suspected(e *Engine) bool {
	return e.MaxCrashes > 0 && a.item.Crashes != nil && *a.item.Crashes < int64(e.MaxCrashes)
}

// admit reports whether an item may begin beside those that have begun. A suspected item waits until another suspected one has ended: if that one
// ends the process, only that one is counted.
func admit(e *Engine, a *attempt) bool {
	if !a.suspected(e) {
		return true
	}
	if e.suspect == nil {
		e.suspect = a
	}
	return e.suspect == a
}

// as returns the row of an item as it was read, but with these numbers of attempts and crashes.
func (a *attempt) as(attempts int, crashes *int64) sqlstore.Result {
	it := &a.item
	return sqlstore.Result{
		Lease: a.h.Lease, Item: it.ID, Version: it.Version, Gate: it.Gate, Status: it.Status, Attempt: attempts,
		Errors: it.Errors, Crashes: crashes,
	}
}

// startAll starts the handlers of items that begin. It first stores the begins that must be stored.
func startAll(e *Engine, items []*attempt) {
	var later []*attempt
	for _, a := range items {
		if e.MaxCrashes > 0 && a.item.Timer == nil && (a.suspected(e) || a.item.Crashes == nil && a.h.Over) {
			later = append(later, a)
		} else {
			runAttempt(e, a)
		}
	}
	for part := range slices.Chunk(later, e.saves.of(saveRows)) {
		startStored(e, part)
	}
}

func startStored(e *Engine, part []*attempt) {
	e.async(&e.starting, func(ctx context.Context) func() {
		begins := sqlstore.Map(part, func(a **attempt) sqlstore.Result {
			var before int64
			if n := (*a).item.Crashes; n != nil {
				before = *n
			}
			return (*a).as((*a).item.Attempt, new(before+1))
		})
		stored, err := e.tables.Save(ctx, e.terms, begins)
		return func() { storedStarts(e, part, stored, err) }
	})
}

// storedStarts starts the handlers whose begins are stored. A begin is not stored if the lease is lost, another program has written the item or
// locked the partition, or the database fails. Then the item is read again before the pass ends: until then, begins are stored.
func storedStarts(e *Engine, part []*attempt, stored []bool, err error) {
	if err != nil && sqlstore.Refused(err) && len(part) > 1 { // one of them prevents the others from being stored
		startStored(e, part[:len(part)/2])
		startStored(e, part[len(part)/2:])
		return
	}
	e.saves.note(err)
	now := time.Now()
	if e.failing("begin", err) || slices.Contains(stored, false) {
		e.timers.fetch = now.Add(max(e.pause, errorPause))
	}
	for i, a := range part {
		switch {
		case err != nil && sqlstore.Refused(err): // nothing can be stored for this item
			runAttempt(e, a)
		case err != nil || !stored[i]:
			a.abandoned, a.h.redo = true, true
			e.saved([]*attempt{a})
		case now.After(a.until): // too late to begin
			a.item.Version++
			a.result = a.as(a.item.Attempt, a.item.Crashes)
			e.results <- a
		default:
			a.item.Version++
			a.stored = true
			runAttempt(e, a)
		}
	}
}
