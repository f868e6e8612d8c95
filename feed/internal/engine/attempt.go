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
	// saveRows is how many results one statement saves, at most.
	saveRows = 2000
	// SaveBytes is how much data they have, but for what the last adds: databases bound a statement, too.
	SaveBytes = 16 << 20
)

// attempt is an item that was fetched, of a partition that is held, and its result once its handler has returned.
type attempt struct {
	h         *hold
	lane      *lane
	item      sqlstore.Item
	result    sqlstore.Result
	saved     bool      // the result is in the database
	refused   bool      // the database refused its result, which is now that of a failed attempt
	late      bool      // the result could not be saved now
	parked    bool      // it was late before
	uncounted bool      // for Concurrency
	abandoned bool      // its outcome counts for nothing
	stored    bool      // its begin is in the row
	until     time.Time // when it is too late to begin
	begun     time.Time
	report    time.Duration   // after which its slow handler is logged
	returned  atomic.Bool     // its handler has
	ctx       context.Context // of the handler
	cancel    context.CancelCauseFunc
}

// worker is the engine as the goroutines of handlers and saves use it. They change attempts, and nothing else of its state.
type worker struct{ *Engine }

// run is the goroutine of a handler. The channel can hold the results of all that may have begun.
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

// end sets the result. An error of a handler that was called off is no attempt that failed.
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

// logged is the value of an error of a handler in a log: its own, or its first line.
func logged(err error) slog.Value {
	var own slog.LogValuer
	if errors.As(err, &own) {
		return own.LogValue()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return slog.StringValue(line)
}

// save writes results of handlers by one statement, beginning with this one. Those that come meanwhile wait in the channel for the next.
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
			if len(e.results) > 0 { // the database need not wait for what follows here
				e.save(<-e.results)
			}
			e.saved(batch)
		}
	})
}

// write saves results and notes which. If the database takes results, but not these, each half is written by itself, until the one is found
// that keeps the others from being saved. One that is refused alone is a failed attempt.
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
	case a.refused || !sqlstore.Refused(failed): // the failed attempt is refused, too, or it is not for what is in the row
		a.late = true
	default:
		a.refused = true
		e.end(a, sqlstore.Result{}, fmt.Errorf("the database refused the result: %w", failed))
		if !a.abandoned {
			e.write(part, t)
		}
	}
}

// tryWrite saves results, again until the engine ends, where the error is for nothing in them: a statement without results fails, too. An
// outage may end between the two, so results are refused only after such a statement has succeeded. A write that succeeded unseen,
// because the connection broke in COMMIT, matches no row the second time.
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
		_ = watch.Sleep(e.db, pause) // the loop looks at its end
	}
}

func (e worker) attemptSave(t sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	ctx, cancel := context.WithTimeout(e.db, e.statement)
	defer cancel()
	return e.tables.Save(ctx, t, results)
}

// saved is loop's part of a save.
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
			// The lease is lost, which the renewal finds out, or another program wrote the item: then it is read again.
			a.h.redo = true
			e.timers.renew = time.Now()
		}
		e.consider(a.h)
	}
}

// Tally counts what the engines of a watcher do; Stats of package feed documents the fields.
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
