// Package feedmetrics exposes a feed to Prometheus: what its tables hold, and what the watchers of this process do.
//
//	registry.MustRegister(feedmetrics.New(store, watcher))
//
// It is a package of its own so that a program without Prometheus does not link its client.
package feedmetrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jetpull/jetpull/feed"
)

const (
	// countWait bounds the count of the backlog.
	countWait = 5 * time.Second
	// countEvery is how often it is counted at most, and countShare how much of the time that may take.
	countEvery = 5 * time.Second
	countShare = 20
)

type collector struct {
	count    func(context.Context) (feed.Backlog, error)
	pruned   func() feed.Pruned
	watchers []*feed.Watcher

	counting chan struct{} // has room for one: who has it full counts, and may use the others
	backlog  feed.Backlog
	err      error
	next     time.Time // not to be counted before
}

// New makes a collector of a store's backlog and of what watchers have done. The backlog is counted when Prometheus
// scrapes, but not within 5 s of the last time, and where counting takes long, for a twentieth of the time: a scrape in
// between gets the numbers of before. While the database does not answer, feed_database_up is 0 and the backlog left
// out. All processes on a database see the same backlog; add up only what watchers do.
func New(s *feed.Store, watchers ...*feed.Watcher) prometheus.Collector {
	return newCollector(s.Backlog, s.Pruned, watchers...)
}

func newCollector(count func(context.Context) (feed.Backlog, error), pruned func() feed.Pruned, watchers ...*feed.Watcher) *collector {
	return &collector{count: count, pruned: pruned, watchers: watchers, counting: make(chan struct{}, 1)}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("feed_"+name, help, labels, nil)
}

var (
	databaseUp = desc("database_up", "1 where the backlog could be counted.")
	items      = desc("items", "Items that are not Complete: ready, delayed until their time, gated until the gate is reached, failed.", "state")
	oldest     = desc("oldest_item_seconds", "Age of the oldest item that is ready.")
	blocked    = desc("blocked_partitions", "Partitions with failed items, which hold their gate.")
	running    = desc("running_items", "Items begun and not yet saved by this process.")
	leases     = desc("leases", "Partitions held by this process.")
	attempts   = desc("attempts_total", "Calls of the processor for an item, by result: ok or failed.", "result")
	handling   = desc("handler_seconds_total", "Time that these calls took.")
	ended      = desc("ended_items_total", "Items saved as Complete or Failed.", "status")
	conflicts  = desc("conflicts_total", "Results that were not saved: the lease was lost, or another program wrote the item.")
	leaseEvent = desc("lease_events_total", "Leases taken, lost to another watcher after their time, and asked of another watcher (steal).", "event")
	gates      = desc("gates_total", "Gates passed, and gates blocked by failed items.", "result")
	errorsSeen = desc("database_errors_total", "Statements that failed and were tried again.")
	prunedRows = desc("pruned_total", "Rows that this process has deleted by Prune: partitions and items.", "table")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		databaseUp, items, oldest, blocked, running, leases, attempts, handling, ended, conflicts, leaseEvent, gates, errorsSeen,
		prunedRows,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	if b, err := c.counted(); err != nil {
		gauge(databaseUp, 0)
	} else {
		gauge(databaseUp, 1)
		gauge(items, float64(b.Ready), "ready")
		gauge(items, float64(b.Delayed), "delayed")
		gauge(items, float64(b.Gated), "gated")
		gauge(items, float64(b.Failed), "failed")
		gauge(oldest, b.Oldest.Seconds())
		gauge(blocked, float64(b.BlockedPartitions))
	}
	s := c.sum()
	gauge(running, float64(s.Running))
	gauge(leases, float64(s.Leases))
	counter(attempts, s.Attempts-s.FailedAttempts, "ok")
	counter(attempts, s.FailedAttempts, "failed")
	ch <- prometheus.MustNewConstMetric(handling, prometheus.CounterValue, s.HandlerTime.Seconds())
	counter(ended, s.Completed, string(feed.Complete))
	counter(ended, s.Failed, string(feed.Failed))
	counter(conflicts, s.Conflicts)
	counter(leaseEvent, s.LeasesTaken, "taken")
	counter(leaseEvent, s.LeasesLost, "lost")
	counter(leaseEvent, s.Steals, "steal")
	counter(gates, s.GatesPassed, "passed")
	counter(gates, s.GatesBlocked, "blocked")
	counter(errorsSeen, s.DatabaseErrors)
	pruned := c.pruned()
	counter(prunedRows, int64(pruned.Partitions), "partitions")
	counter(prunedRows, int64(pruned.Items), "items")
}

// counted is the backlog of now, or of a moment ago.
func (c *collector) counted() (feed.Backlog, error) {
	c.counting <- struct{}{}
	defer func() { <-c.counting }()
	begun := time.Now()
	if begun.Before(c.next) {
		return c.backlog, c.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), countWait)
	defer cancel()
	if c.backlog, c.err = c.count(ctx); c.err != nil {
		slog.Warn("feed: the backlog is not counted", "error", c.err)
	}
	c.next = time.Now().Add(max(countEvery, countShare*time.Since(begun)))
	return c.backlog, c.err
}

// sum adds up what the watchers have done.
func (c *collector) sum() (all feed.Stats) {
	for _, w := range c.watchers {
		s := w.Stats()
		all.Running += s.Running
		all.Leases += s.Leases
		all.Attempts += s.Attempts
		all.FailedAttempts += s.FailedAttempts
		all.HandlerTime += s.HandlerTime
		all.Completed += s.Completed
		all.Failed += s.Failed
		all.Conflicts += s.Conflicts
		all.LeasesTaken += s.LeasesTaken
		all.LeasesLost += s.LeasesLost
		all.Steals += s.Steals
		all.GatesPassed += s.GatesPassed
		all.GatesBlocked += s.GatesBlocked
		all.DatabaseErrors += s.DatabaseErrors
	}
	return all
}
