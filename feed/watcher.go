package feed

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/feed/internal/engine"
)

// WakeupSubject is the NATS subject of wake-ups. The payload of a wake-up is the ID of a partition.
const WakeupSubject = "jetpull.feed.wakeup"

// publishTo returns a function that publishes wake-ups. They are hints: if one cannot be sent, polling finds the work.
func publishTo(nc *nats.Conn) func(partition string) {
	return func(partition string) { _ = nc.Publish(WakeupSubject, []byte(partition)) }
}

// Watcher leases partitions and calls a [Processor] for their items. Several watchers may run on the same tables, in one process or in many.
// Each call of Run is an owner of its own.
type Watcher struct {
	tables    engine.Tables
	processor Processor
	config    *config
	noLimits  bool // the database's clock may stand still within a transaction
	tally     engine.Tally
}

// NewWatcher returns a watcher. If an option is not valid, [Watcher.Run] returns the error.
func NewWatcher(s *Store, p Processor, opts ...WatcherOption) *Watcher {
	w := &Watcher{processor: p, config: newConfig(opts)}
	if s != nil {
		w.tables = s.sql
		w.noLimits = s.sql.Dialect.Slack > 0
	}
	return w
}

// Run processes items until ctx ends. Then it begins no more items. Running handlers may continue for up to [DrainTimeout]. After that it cancels
// their contexts. Run returns nil when all results are saved and all leases are released. Otherwise it returns [ErrDrainTimeout], at most
// DrainTimeout and a second after ctx ended, regardless of handlers and the database. Leases that it could not release expire. [ErrInvalid] names an
// option that is not valid. Errors of the database do not end Run: it logs them and retries.
func (w *Watcher) Run(ctx context.Context) error {
	err := cmp.Or(
		check(w.tables != nil, "Store", "is nil"), check(w.processor != nil, "Processor", "is nil"), w.config.check(),
		check(!w.noLimits || len(w.config.Limits) == 0, "Limits", "need SQLite, PostgreSQL or SQL Server"),
	)
	if err != nil || ctx.Err() != nil {
		return err
	}
	w.config.Log.Info("feed: watching", "concurrency", w.config.Concurrency, "lease", w.config.Lease)
	e := engine.New(ctx, w.config.Config, w.tables, &handler{w.config, w.processor}, &w.tally)
	defer w.wakeups(e)()
	if !e.Run(ctx) {
		return fmt.Errorf("feed: %w of %v is over: handlers are still running, or leases could not be given back", ErrDrainTimeout, w.config.DrainTimeout)
	}
	return nil
}

// wakeups passes wake-ups from NATS to an engine, and publishes those of this process, until end is called.
func (w *Watcher) wakeups(e *engine.Engine) (end func()) {
	nc := w.config.wakeups
	if nc == nil {
		return func() {}
	}
	unsubscribe := w.tables.Subscribe(publishTo(nc))
	sub, err := nc.Subscribe(WakeupSubject, func(m *nats.Msg) { e.Wake(string(m.Data)) })
	if err != nil {
		w.config.Log.Warn("feed: no wake-ups by NATS", "error", err)
	}
	return func() {
		unsubscribe()
		_ = sub.Unsubscribe() // the connection may be closed already, or there is none
	}
}

// Stats are counters of a [Watcher] since it was created, except for Running, Leases and Slow, which are gauges.
type Stats struct {
	// Running is the number of items that are begun and not yet saved, and Leases is the number of leases held.
	Running, Leases int
	// Slow is the number of handlers that have run for 10 minutes, or for 10 s longer than [HandlerTimeout]. It is counted every 10 s. Each
	// occupies one of Concurrency's slots.
	Slow int
	// Attempts counts the attempts that ended, and FailedAttempts those that ended with an error. HandlerTime is the sum of their durations.
	Attempts, FailedAttempts int64
	HandlerTime              time.Duration
	// Completed and Failed count the items that were saved as Complete and as Failed.
	Completed, Failed int64
	// Conflicts counts the results that were not saved, because the lease was lost or another program wrote the item.
	Conflicts int64
	// LeasesTaken counts the leases that the watcher took, and LeasesLost those that expired and went to another watcher. Steals counts the
	// partitions that it requested from other watchers; see [Steal].
	LeasesTaken, LeasesLost, Steals int64
	// GatesPassed counts gates whose last item became Complete, and GatesBlocked counts gates that a Failed item blocked.
	GatesPassed, GatesBlocked int64
	// DatabaseErrors counts the statements that failed. Each is retried.
	DatabaseErrors int64
}

// Stats returns the counters of all Runs. It may be called at any time and makes no request.
func (w *Watcher) Stats() Stats {
	c := &w.tally
	return Stats{
		Running: int(c.Running.Load()), Slow: int(c.Slow.Load()), Leases: int(c.Leases.Load()),
		Attempts: c.Attempts.Load(), FailedAttempts: c.FailedAttempts.Load(), HandlerTime: time.Duration(c.HandlerTime.Load()),
		Completed: c.Completed.Load(), Failed: c.Failed.Load(), Conflicts: c.Conflicts.Load(),
		LeasesTaken: c.LeasesTaken.Load(), LeasesLost: c.LeasesLost.Load(), Steals: c.Steals.Load(),
		GatesPassed: c.GatesPassed.Load(), GatesBlocked: c.GatesBlocked.Load(), DatabaseErrors: c.DatabaseErrors.Load(),
	}
}
