package feed

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/feed/internal/engine"
)

// WakeupSubject is the NATS subject of wake-ups; the payload is a partition's ID.
const WakeupSubject = "jetpull.feed.wakeup"

// Watcher leases partitions and has their items processed. Several may run on the same tables, in one process or
// many; each Run is an owner of its own.
type Watcher struct {
	tables    engine.Tables
	processor Processor
	config    *config
	noLimits  bool // the database's clock may stand still within a transaction
	tally     engine.Tally
}

// NewWatcher makes a watcher. [Watcher.Run] returns an error for an option that cannot be used.
func NewWatcher(s *Store, p Processor, opts ...WatcherOption) *Watcher {
	w := &Watcher{processor: p, config: newConfig(opts)}
	if s != nil {
		w.tables = s.sql
		w.noLimits = s.sql.Dialect.Later == ""
	}
	return w
}

// Run processes items until ctx ends. Then nothing more is begun, running handlers go on for [DrainTimeout], and their
// results are saved; after that their context is cancelled. It returns nil once all is saved and the leases are given
// back, and [ErrDrainTimeout] DrainTimeout and a second after the end of ctx at the latest, whatever handlers and
// database do. The leases that it could not give back, also those of handlers that still run, end by time. [ErrInvalid] names an option that cannot be used. Errors of the database do not end it: they are
// logged, and it tries again.
func (w *Watcher) Run(ctx context.Context) error {
	switch {
	case w.tables == nil:
		return invalid("Store", "is nil")
	case w.processor == nil:
		return invalid("Processor", "is nil")
	}
	if err := w.config.check(); err != nil {
		return err
	}
	if w.noLimits && len(w.config.limits) > 0 {
		return invalid("Limits", "need SQLite, PostgreSQL or SQL Server")
	}
	if ctx.Err() != nil {
		return nil
	}
	h := &handler{config: w.config}
	h.call, w.config.Batch = batchOf(w.processor)
	if w.config.tracers != nil {
		h.tracer = w.config.tracers.Tracer("github.com/jetpull/jetpull/feed")
	}
	w.config.Log.Info("feed: watching", "concurrency", w.config.Concurrency, "lease", w.config.Lease)
	e := engine.New(ctx, w.config.Config, w.tables, h, &w.tally)
	defer w.wakeups(e)()
	if !e.Run(ctx) {
		return fmt.Errorf("feed: %w of %v is over: handlers are still running, or leases could not be given back", ErrDrainTimeout, w.config.DrainTimeout)
	}
	return nil
}

// wakeups passes wake-ups by NATS on to an engine, and publishes those of this process, until it is ended.
func (w *Watcher) wakeups(e *engine.Engine) (end func()) {
	nc := w.config.wakeups
	if nc == nil {
		return func() {}
	}
	unsubscribe := w.tables.Subscribe(func(partition string) {
		_ = nc.Publish(WakeupSubject, []byte(partition)) // a hint; see PublishWakeups
	})
	sub, err := nc.Subscribe(WakeupSubject, func(m *nats.Msg) { e.Wake(string(m.Data)) })
	if err != nil {
		w.config.Log.Warn("feed: no wake-ups by NATS", "error", err)
		return unsubscribe
	}
	return func() {
		unsubscribe()
		_ = sub.Unsubscribe() // the connection may be closed already
	}
}

// Stats are what a [Watcher] has done since it was made.
type Stats struct {
	// Running is how many items are begun and not yet saved, Leases how many partitions are held.
	Running, Leases int
	// Attempts are the calls for an item that returned, of which FailedAttempts returned an error; HandlerTime is what
	// they took together.
	Attempts, FailedAttempts int64
	HandlerTime              time.Duration
	// Completed and Failed are the items that were saved as Complete and as Failed.
	Completed, Failed int64
	// Conflicts are the results that were not saved, because the lease was lost or another program wrote the item.
	Conflicts int64
	// LeasesTaken were free. LeasesLost ended by time and went to another watcher. Steals are the partitions that
	// other watchers were asked for; see [Steal].
	LeasesTaken, LeasesLost, Steals int64
	// GatesPassed and GatesBlocked are how often the last item at a gate was Complete, and how often one was Failed.
	GatesPassed, GatesBlocked int64
	// DatabaseErrors are the statements that failed, each of which is tried again.
	DatabaseErrors int64
}

// Stats returns what the watcher has done, in all its Runs. It may be called at any time and asks nobody.
func (w *Watcher) Stats() Stats {
	c := &w.tally
	return Stats{
		Running: int(c.Running.Load()), Leases: int(c.Leases.Load()),
		Attempts: c.Attempts.Load(), FailedAttempts: c.FailedAttempts.Load(), HandlerTime: time.Duration(c.HandlerTime.Load()),
		Completed: c.Completed.Load(), Failed: c.Failed.Load(), Conflicts: c.Conflicts.Load(),
		LeasesTaken: c.LeasesTaken.Load(), LeasesLost: c.LeasesLost.Load(), Steals: c.Steals.Load(),
		GatesPassed: c.GatesPassed.Load(), GatesBlocked: c.GatesBlocked.Load(), DatabaseErrors: c.DatabaseErrors.Load(),
	}
}
