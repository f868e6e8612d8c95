package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// saveRows is the maximum number of results that one statement saves.
	saveRows = 2000
	// SaveBytes bounds their data, except that of the last result: databases bound the size of a statement.
	SaveBytes = 16 << 20
)

// attempt is a fetched item of a held partition, with its result when its handler has returned.
type attempt struct {
	h         *hold
	lane      *lane
	item      sqlstore.Item
	result    sqlstore.Result
	saved     bool      // the result is in the database
	refused   bool      // the database refused its result, which is now that of a failed attempt
	late      bool      // the result could not be saved this time
	parked    bool      // it was late before
	uncounted bool      // Concurrency does not count it any more
	abandoned bool      // its outcome is discarded
	stored    bool      // its begin is stored in the row
	until     time.Time // when it is too late to begin
	begun     time.Time
	report    time.Duration   // after which its slow handler is logged
	returned  atomic.Bool     // its handler has returned
	ctx       context.Context // of the handler
	cancel    context.CancelCauseFunc
}

// worker is the engine for the goroutines of handlers and saves. They change only attempts in its state.
type worker struct{ *Engine }

// run is the goroutine of a handler. The channel can hold the results of all items that may have begun.
func (e worker) run(a *attempt) {
	result, err := sqlstore.Result{}, ErrExited
	ctx, stop := a.ctx, func() {}
	if d := e.HandlerTimeout; d > 0 {
		ctx, stop = context.WithTimeoutCause(ctx, d, fmt.Errorf("the attempt took over %v", d))
	}
	defer func() {
		a.returned.Store(true)
		if err != nil && ctx.Err() != nil && a.h.ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		stop()
		a.cancel(nil)
		e.tally.attempted(time.Since(a.begun), err)
		e.end(a, result, err)
		e.results <- a
	}()
	result, err = e.handler.Process(ctx, &a.item)
}

// end sets the result. An error of a cancelled handler is not a failed attempt.
func (e worker) end(a *attempt, result sqlstore.Result, err error) {
	if err != nil && a.h.ctx.Err() != nil {
		a.result, a.abandoned = a.as(a.item.Attempt-1, nil), !a.stored || errors.Is(context.Cause(a.h.ctx), errLost)
		return
	}
	if err != nil {
		e.Log.Warn("feed: attempt failed", "partition", a.item.PartitionID, "item", a.item.ID, "gate", a.item.Gate, "attempt", a.item.Attempt,
			"error", logged(err))
		result = e.handler.Failed(&a.item, err)
	}
	a.result = result
	a.result.Lease = a.h.Lease
}

// logged returns the log value of a handler's error: its own, or its first line.
func logged(err error) slog.Value {
	var own slog.LogValuer
	if errors.As(err, &own) {
		return slog.AnyValue(own) // the logger's handler calls LogValue, and survives a panic in it
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return slog.StringValue(line)
}

// save writes results of handlers in one statement, beginning with a. Results that arrive meanwhile wait in the channel for the next statement.
func (e *Engine) save(a *attempt) {
	batch, size := []*attempt{a}, len(a.result.Data)
	rows, most := e.saves.of(saveRows), e.saves.of(SaveBytes)
	for len(e.results) > 0 && len(batch) < rows && size < most { // nobody else receives from it
		a = <-e.results
		batch, size = append(batch, a), size+len(a.result.Data)
	}
	e.async(&e.saving, func(context.Context) func() {
		worker{e}.write(slices.DeleteFunc(slices.Clone(batch), func(a *attempt) bool { return a.abandoned }), e.terms)
		return func() {
			e.saves.note(nil)
			if len(e.results) > 0 { // so that the database does not wait for e.saved
				e.save(<-e.results)
			}
			e.saved(batch)
		}
	})
}

// write saves results, and notes which were saved. If the database takes results, but not these, write writes each half by itself, to find the result
// that prevents the others from being saved. A result that is refused alone is a failed attempt.
func (e worker) write(part []*attempt, t sqlstore.Terms) {
	if len(part) == 0 {
		return
	}
	failed := e.tryWrite(part, t)
	a := part[0]
	switch {
	case failed == nil:
	case len(part) > 1:
		e.write(part[:len(part)/2], t)
		e.write(part[len(part)/2:], t)
	case a.refused || !sqlstore.Refused(failed): // the failed attempt is refused, too, or the row is not the cause
		a.late = true
	default:
		a.refused = true
		e.end(a, sqlstore.Result{}, fmt.Errorf("the database refused the result: %w", failed))
		if !a.abandoned {
			e.write(part, t)
		}
	}
}

// tryWrite saves results. It retries until the engine ends if the results are not the cause of the error: then a statement without results fails,
// too. An outage may end between the two, so results are refused only after such a statement has succeeded. A write that succeeded unseen, because
// the connection broke in COMMIT, matches no row the second time.
func (e worker) tryWrite(part []*attempt, t sqlstore.Terms) error {
	results := sqlstore.Map(part, func(a **attempt) sqlstore.Result { return (*a).result })
	saves := false // a statement without results has succeeded before this one
	for pause := errorPause; ; pause = min(2*pause, maxPause) {
		wrote, err := e.attemptSave(t, results)
		if err == nil {
			for i, a := range part {
				a.saved, a.late, a.result.Locked = wrote[i], results[i].Locked, results[i].Locked
				if a.late {
					continue
				}
				e.tally.saved(&a.result, a.saved)
				if !a.saved {
					e.handler.Conflict(&a.item)
				}
			}
			return nil
		}
		if e.db.Err() != nil {
			return nil //nolint:nilerr // the engine ends, and nothing was refused
		}
		e.post(func() {
			e.failing("save", err)
			e.saves.note(err)
		})
		if sqlstore.Refused(err) || sqlstore.Slow(err) {
			_, outage := e.attemptSave(t, nil)
			if outage == nil && (saves || !sqlstore.Refused(err)) {
				return err
			}
			if saves = outage == nil; saves {
				continue
			}
		}
		_ = watch.Sleep(e.db, pause) // the loop checks whether it has ended
	}
}

func (e worker) attemptSave(t sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	ctx, cancel := context.WithTimeout(e.db, e.statement)
	defer cancel()
	return e.tables.Save(ctx, t, results)
}

// saved is the part of a save on loop.
func (e *Engine) saved(batch []*attempt) {
	for _, a := range batch {
		if e.suspect == a {
			e.suspect = nil
		}
		delete(e.running, a)
		r := &a.result
		if a.late && a.h.phase != gone && (!a.refused || !a.h.leave) { // the next owner processes it again
			a.park(e)
			continue
		}
		a.uncount(e)
		a.h.resume(e)
		a.h.running--
		a.lane.active--
		delete(a.h.inFlight, a.item.ID)
		if a.h.phase == fetching && !a.abandoned {
			a.h.savedMeanwhile[a.item.ID] = a.item.Version
		}
		switch {
		case a.saved && r.Delay > 0 && r.Status == sqlstore.Available:
			e.timers.remember(time.Now().Add(r.Delay), r.ID)
		case a.saved && r.Status == sqlstore.Available && r.Gate == a.item.Gate:
			a.h.redo = true
		case !a.saved && !a.abandoned:
			// The lease is lost, which the renewal detects, or another program wrote the item, which is then read again.
			a.h.redo = true
			e.timers.renew = time.Now()
		}
		e.consider(a.h)
	}
}

// Tally has the counters of a watcher's engines; Stats of package feed documents the fields.
type Tally struct {
	Running, Slow, Leases           atomic.Int64
	Attempts, FailedAttempts        atomic.Int64
	HandlerTime                     atomic.Int64 // nanoseconds
	Completed, Failed, Conflicts    atomic.Int64
	LeasesTaken, LeasesLost, Steals atomic.Int64
	GatesPassed, GatesBlocked       atomic.Int64
	DatabaseErrors                  atomic.Int64
}

func (t *Tally) attempted(took time.Duration, err error) {
	t.Attempts.Add(1)
	t.HandlerTime.Add(int64(took))
	if err != nil {
		t.FailedAttempts.Add(1)
	}
}

func (t *Tally) saved(r *sqlstore.Result, ok bool) {
	switch {
	case !ok:
		t.Conflicts.Add(1)
	case r.Status == sqlstore.Complete:
		t.Completed.Add(1)
	case r.Status == sqlstore.Failed:
		t.Failed.Add(1)
	}
}
