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

// reportMost bounds the items of a report, those that have run longest first.
const reportMost = 500

// ErrCancelled is the cause of the end of a context that [sqlstore.Cancel] asked for.
var ErrCancelled = errors.New("feed: the attempt was cancelled")

// report states which handlers run, and cancels those that the watcher was asked to cancel. It is called at each renewal. Nothing is written while
// no handler runs then.
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
	r.Host, _ = os.Hostname() // empty where it is not known
	e.async(&e.reporting, func(ctx context.Context) func() {
		cancels, err := e.tables.Report(ctx, e.terms, r)
		return func() {
			e.failing("report", err)
			// Also after an error: the deletion of what was asked for may be stored, and its answer lost.
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
