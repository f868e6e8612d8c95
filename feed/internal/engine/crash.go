package engine

import (
	"context"
	"slices"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// With MaxCrashes, the begin of an attempt is stored before its handler begins if the item may have ended a process: its partition was taken
// over from a watcher that did not return it, or an attempt was stored that did not end. Each result that is saved clears what is stored.

// suspected reports whether an attempt at the item was stored and did not end. If there are too many, no handler gets the item.
func (a *attempt) suspected(e *Engine) bool {
	return e.MaxCrashes > 0 && a.item.Crashes != nil && *a.item.Crashes < int64(e.MaxCrashes)
}

// admit reports whether an item may begin beside those that have begun. One that is suspected waits for another such one to end: if that ends
// the process, only it is counted.
func admit(e *Engine, a *attempt) bool {
	if !a.suspected(e) {
		return true
	}
	if e.suspect == nil {
		e.suspect = a
	}
	return e.suspect == a
}

// as is the row of an item as it was read, with these numbers of attempts and crashes.
func (a *attempt) as(attempts int, crashes *int64) sqlstore.Result {
	it := &a.item
	return sqlstore.Result{
		Lease: a.h.Lease, Item: it.ID, Version: it.Version, Gate: it.Gate, Status: it.Status, Attempt: attempts,
		Errors: it.Errors, Crashes: crashes,
	}
}

// startAll starts the handlers of items that begin, after those begins are stored that have to be.
func startAll(e *Engine, items []*attempt) {
	var later []*attempt
	for _, a := range items {
		if e.MaxCrashes > 0 && a.item.Timer == nil && (a.suspected(e) || a.item.Crashes == nil && a.h.over) {
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

// storedStarts starts handlers whose begins are stored. An item whose begin is not, because the lease is lost, another program has written the item
// or locked the partition, or the database fails, is read again.
func storedStarts(e *Engine, part []*attempt, stored []bool, err error) {
	if err != nil && sqlstore.Refused(err) && len(part) > 1 { // one of them keeps the others from being stored
		startStored(e, part[:len(part)/2])
		startStored(e, part[len(part)/2:])
		return
	}
	e.saves.note(err)
	now := time.Now()
	if e.failing("begin", err) {
		e.timers.fetch = now.Add(e.pause)
	}
	for i, a := range part {
		switch {
		case err != nil && sqlstore.Refused(err): // nothing can be stored of this item
			runAttempt(e, a)
		case err != nil || !stored[i]:
			a.abandoned, a.h.skipped = true, true
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
