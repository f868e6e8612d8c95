// Package feedmetrics exposes metrics of a feed to Prometheus: its backlog, and the counters of watchers in this process.
//
//	registry.MustRegister(feedmetrics.New(store, watcher))
//
// It is a separate package, so that a program without Prometheus does not link the Prometheus client.
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
	// countEvery is the minimum interval between counts. Counting may take 1/countShare of the time.
	countEvery = 5 * time.Second
	countShare = 20
)

type collector struct {
	count    func(context.Context) (feed.Backlog, error)
	pruned   func() feed.Pruned
	watchers []*feed.Watcher

	counting chan struct{} // one slot, used as a lock: its holder counts, and may use the other fields
	backlog  feed.Backlog
	err      error
	next     time.Time // of the next count, at the earliest
}

// New returns a collector of the backlog of a store and the counters of watchers. The backlog is counted when Prometheus scrapes, at most once
// in 5 s, and less often if counting takes long, so that it takes at most a twentieth of the time. A scrape between two counts returns the
// earlier numbers. While the database does not answer, feed_database_up is 0 and the backlog is left out. All processes on a database report the
// same backlog, so add up only the counters of watchers.
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
	items      = desc("items", "Items that are not Complete: ready, delayed until their time, gated until the gate is reached, passed if another "+
		"program inserted them below the gate, failed.", "state")
	oldest     = desc("oldest_item_seconds", "Age of the oldest item that is ready.")
	blocked    = desc("blocked_partitions", "Partitions with failed items, which block their gate.")
	running    = desc("running_items", "Items begun and not yet saved by this process.")
	slow       = desc("slow_handlers", "Handlers that have run for 10 minutes, or for 10 s longer than HandlerTimeout. Each occupies a slot.")
	leases     = desc("leases", "Partitions held by this process.")
	attempts   = desc("attempts_total", "Calls of the processor for an item, by result: ok or failed.", "result")
	handlers   = desc("handler_seconds_total", "Time that these calls took.")
	ended      = desc("ended_items_total", "Items saved as Complete or Failed.", "status")
	conflicts  = desc("conflicts_total", "Results that were not saved: the lease was lost, or another program wrote the item.")
	leaseEvent = desc("lease_events_total", "Leases taken, lost to another watcher after their time, and requested from another one (steal).", "event")
	gates      = desc("gates_total", "Gates passed, and gates blocked by failed items.", "result")
	failures   = desc("database_errors_total", "Statements that failed and were tried again.")
	prunedRows = desc("pruned_total", "Rows of partitions and items that Store.Prune has deleted since this process opened the store. Other "+
		"processes, such as jetpull feed prune, do not count.", "table")
)

const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue

// counts are the metrics of watchers. Each is the sum over the collector's watchers.
var counts = []struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels []string
	of     func(feed.Stats) float64
}{
	{running, gauge, nil, func(s feed.Stats) float64 { return float64(s.Running) }},
	{slow, gauge, nil, func(s feed.Stats) float64 { return float64(s.Slow) }},
	{leases, gauge, nil, func(s feed.Stats) float64 { return float64(s.Leases) }},
	{attempts, counter, []string{"ok"}, func(s feed.Stats) float64 { return float64(s.Attempts - s.FailedAttempts) }},
	{attempts, counter, []string{"failed"}, func(s feed.Stats) float64 { return float64(s.FailedAttempts) }},
	{handlers, counter, nil, func(s feed.Stats) float64 { return s.HandlerTime.Seconds() }},
	{ended, counter, []string{string(feed.Complete)}, func(s feed.Stats) float64 { return float64(s.Completed) }},
	{ended, counter, []string{string(feed.Failed)}, func(s feed.Stats) float64 { return float64(s.Failed) }},
	{conflicts, counter, nil, func(s feed.Stats) float64 { return float64(s.Conflicts) }},
	{leaseEvent, counter, []string{"taken"}, func(s feed.Stats) float64 { return float64(s.LeasesTaken) }},
	{leaseEvent, counter, []string{"lost"}, func(s feed.Stats) float64 { return float64(s.LeasesLost) }},
	{leaseEvent, counter, []string{"steal"}, func(s feed.Stats) float64 { return float64(s.Steals) }},
	{gates, counter, []string{"passed"}, func(s feed.Stats) float64 { return float64(s.GatesPassed) }},
	{gates, counter, []string{"blocked"}, func(s feed.Stats) float64 { return float64(s.GatesBlocked) }},
	{failures, counter, nil, func(s feed.Stats) float64 { return float64(s.DatabaseErrors) }},
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{databaseUp, items, oldest, blocked, prunedRows} {
		ch <- d
	}
	for _, m := range counts {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	if b, err := c.counted(); err != nil {
		send(databaseUp, gauge, 0)
	} else {
		send(databaseUp, gauge, 1)
		for state, n := range map[string]int{"ready": b.Ready, "delayed": b.Delayed, "gated": b.Gated, "passed": b.Passed, "failed": b.Failed} {
			send(items, gauge, float64(n), state)
		}
		send(oldest, gauge, b.Oldest.Seconds())
		send(blocked, gauge, float64(b.BlockedPartitions))
	}
	for _, m := range counts {
		sum := 0.0
		for _, w := range c.watchers {
			sum += m.of(w.Stats())
		}
		send(m.desc, m.kind, sum, m.labels...)
	}
	pruned := c.pruned()
	send(prunedRows, counter, float64(pruned.Partitions), "partitions")
	send(prunedRows, counter, float64(pruned.Items), "items")
}

// counted returns the backlog. It may reuse the last count.
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
