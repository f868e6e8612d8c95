package engine

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	// reportMost bounds the items of a report. It has the longest-running ones.
	reportMost = 500
	// slowAfter is how long a handler runs before it is slow without a HandlerTimeout, and slowGrace how long after a HandlerTimeout.
	slowAfter, slowGrace = 10 * time.Minute, 10 * time.Second
	// slowEvery is how often the engine looks for such handlers, and slowLogged how many it logs then.
	slowEvery, slowLogged = 10 * time.Second, 10
)

// ErrCancelled is the cause of the end of a context that a [sqlstore.Cancel] requested.
var ErrCancelled = errors.New("feed: the attempt was cancelled")

func runAttempt(e *Engine, a *attempt) {
	a.begun = time.Now()
	e.running[a] = struct{}{}
	a.item.Attempt++
	a.ctx, a.cancel = context.WithCancelCause(a.h.ctx)
	go worker{e}.run(a)
}

// reportSlow counts the handlers that run for too long, and logs each once, and again when its time has doubled.
func reportSlow(e *Engine, now time.Time) {
	if now.Before(e.timers.slow) {
		return
	}
	e.timers.slow = now.Add(slowEvery)
	limit := slowAfter
	if e.HandlerTimeout > 0 {
		limit = e.HandlerTimeout + slowGrace
	}
	var slow []*attempt
	for a := range e.running {
		if now.Sub(a.begun) >= limit && !a.returned.Load() {
			slow = append(slow, a)
		}
	}
	e.tally.Slow.Add(int64(len(slow) - e.slow))
	e.slow = len(slow)
	logged := 0
	for _, a := range slow {
		if took := now.Sub(a.begun); took >= a.report && logged < slowLogged {
			logged++
			a.report = 2 * took
			e.Log.Warn("feed: handler runs for long", "partition", a.item.PartitionID, "item", a.item.ID, "gate", a.item.Gate,
				"for", took.Round(time.Second), "slots", len(slow), "of", e.Concurrency)
		}
	}
}

// report stores which handlers run, and cancels those that the watcher was asked to cancel. It is called at each renewal. It writes nothing if no
// handler runs and the last report has none.
func report(e *Engine, now time.Time) {
	var running []sqlstore.RunningReport
	for a := range e.running {
		if !a.returned.Load() {
			it := &a.item // nobody changes it while its handler runs
			running = append(running, sqlstore.RunningReport{
				Partition: it.PartitionID, Item: it.ID, Version: it.Version, Gate: it.Gate, Attempt: it.Attempt, For: now.Sub(a.begun),
			})
		}
	}
	if e.reporting > 0 || len(running) == 0 && !e.reported {
		return
	}
	e.reported = len(running) > 0
	slices.SortFunc(running, func(a, b sqlstore.RunningReport) int { return cmp.Compare(b.For, a.For) })
	r := sqlstore.Report{PID: os.Getpid(), Every: e.Lease / renewals, Running: running[:min(len(running), reportMost)]}
	r.Host, _ = os.Hostname() // empty if it is unknown
	e.async(&e.reporting, func(ctx context.Context) func() {
		cancels, err := e.tables.Report(ctx, e.terms, r)
		return func() {
			e.failing("report", err)
			// Even after an error: the deletion of the requests may be stored, and its answer lost.
			for a := range e.running {
				if slices.ContainsFunc(cancels, func(c sqlstore.Cancel) bool {
					return c.PartitionID == a.item.PartitionID && c.ItemID == a.item.ID && c.Version == a.item.Version
				}) {
					a.cancel(ErrCancelled)
				}
			}
		}
	})
}
