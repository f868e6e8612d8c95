package feed

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// config is the options of a watcher.
type config struct {
	engine.Config
	maxRetries                           int
	limits                               []Limit
	requeue                              time.Duration
	backoff                              func(int) time.Duration
	onError                              func(Item, error)
	wakeups                              *nats.Conn
	tracers                              trace.TracerProvider
	wakeupsGiven, tracerGiven, nilOption bool
}

// WatcherOption changes how a [Watcher] works. Of an option that is given twice the last holds.
type WatcherOption func(*config)

// Concurrency sets how many items have begun and are not yet saved, at most; 1 to 100,000. By default 64. As many
// more may have been read ahead.
func Concurrency(n int) WatcherOption { return func(c *config) { c.Concurrency = n } }

// Lease sets how long a partition stays with a watcher that died, by the database's clock; 100 ms to 24 h. By default 30 s.
// A lease is renewed after a third of it, however long handlers take. It is also how long a statement of the watcher may
// take before it is given up and tried again, but for 10 s at least.
func Lease(d time.Duration) WatcherOption { return func(c *config) { c.Lease = d } }

// Poll sets how often the database is asked for work: every least while there is some, then ever less often up to
// every most, both a fifth more or less by chance. At least 1 ms, and most is not below least. By default 100 ms and 5 s.
func Poll(least, most time.Duration) WatcherOption {
	return func(c *config) { c.PollMin, c.PollMax = least, most }
}

// MaxPartitions sets how many leases the watcher holds, at most; at least 1. By default 1,000. A partition without work
// takes none; where others wait, one with work gives its lease up after it has had it for a lease's length. Nothing of it is
// begun then until what has begun is over: where handlers take long, give more than there are partitions with work.
func MaxPartitions(n int) WatcherOption { return func(c *config) { c.MaxPartitions = n } }

// PartitionConcurrency sets how many items of one partition have begun and are not yet saved, at most; at least 1. By default as many
// as [Concurrency] allows. A partition has one owner, so this holds over all watchers that have the option: a watcher
// releases a partition after its handlers have returned. When DrainTimeout is over, or the watcher learns that its lease has ended, the
// contexts of its handlers are cancelled. A handler that ignores its context, or whose watcher cannot reach the database, can run beside
// those of the next owner.
func PartitionConcurrency(n int) WatcherOption {
	return func(c *config) { c.PartitionConcurrency = n }
}

// Limit bounds what is done at a gate, over all partitions and all watchers that have the same [Limits].
type Limit struct {
	Gate int
	// Concurrency is how many items of the gate have begun and are not yet saved, at most; 0: any number.
	Concurrency int
	// Rate is how many attempts begin in any window of Per, at most; 0: any number. Per is 1 s to 24 h, by the database's clock.
	Rate int
	Per  time.Duration
}

// Limits sets the limits of gates, one for a gate; none by default. Give the same to each watcher. While they differ, each watcher obeys its
// own figures, so the largest ones hold, and attempts are counted for the shortest Per. A watcher without a limit, or whose limit has 0 for a
// figure, is neither counted nor bound by that figure. While others wait, each watcher has a fair share. Up to a tenth of a rate is not used,
// so that no window exceeds it. An attempt begins when the watcher takes the item, just before its handler is called.
//
// After a watcher has died, its share of Concurrency stays counted for [Lease], and its attempts for Per. Running handlers are no longer
// counted after their watcher was stopped, could not reach the database, or waited for its locks, for longer than Lease, or after
// [ErrDrainTimeout]. The database is SQLite, PostgreSQL or SQL Server.
func Limits(l ...Limit) WatcherOption { return func(c *config) { c.limits = l } }

// ManualCheckpoint leaves the gates where they are until [Store.Advance]. Off by default.
func ManualCheckpoint() WatcherOption { return func(c *config) { c.Manual = true } }

// AutoClose makes a sealed partition Complete once all its items are. Off by default.
func AutoClose() WatcherOption { return func(c *config) { c.AutoClose = true } }

// MaxRetries sets how many more attempts a step has after its first; 0: none; -1: for ever. By default 5. After the last
// the item is Failed.
func MaxRetries(n int) WatcherOption { return func(c *config) { c.maxRetries = n } }

// Backoff sets the least delay after the attempt with this number, 1 for the first; 0 or less: none; a year at most. By
// default 1 s, doubling to 1 min, a fifth more or less by chance, which also holds where f panics.
func Backoff(f func(attempt int) time.Duration) WatcherOption {
	return func(c *config) { c.backoff = f }
}

// Requeue sets the delay after which an item is processed again whose Response left it at its gate; 0: none; a year at
// most. By default 1 s.
func Requeue(d time.Duration) WatcherOption { return func(c *config) { c.requeue = d } }

// DrainTimeout sets how long handlers may go on after the end of Run's context before theirs is cancelled; 0: not at
// all. By default 30 s.
func DrainTimeout(d time.Duration) WatcherOption { return func(c *config) { c.DrainTimeout = d } }

// Steal makes a watcher that finds no partition free ask the watcher with the most leases for one, and go on as long
// as that has two more than itself. The other begins nothing more of it and gives it up after the items that it has begun,
// so nothing is repeated. Off by default.
func Steal() WatcherOption { return func(c *config) { c.Steal = true } }

// Wakeups makes the watcher look for work when a message comes on [WakeupSubject], and publishes there what this
// Store changes. None by default; changes of this process and, on PostgreSQL, of others wake it in any case.
// While NATS is down the polls find what there is.
func Wakeups(nc *nats.Conn) WatcherOption {
	return func(c *config) { c.wakeups, c.wakeupsGiven = nc, true }
}

// Logger sets where failed attempts, lost leases and errors of the database are logged. By default [slog.Default].
func Logger(l *slog.Logger) WatcherOption { return func(c *config) { c.Log = l } }

// Tracer makes a span for each attempt, named process, with the IDs of partition and item, the gate and the attempt. The
// processors that send items away pass it on in the header traceparent. None by default.
func Tracer(tp trace.TracerProvider) WatcherOption {
	return func(c *config) { c.tracers, c.tracerGiven = tp, true }
}

// OnError sets what is called for each failed attempt, and with [ErrConflict] for each result that was not saved,
// because the lease was lost or another program wrote the item. It is called by several goroutines and must not
// block for long. A panic in it is logged. None by default.
func OnError(f func(Item, error)) WatcherOption { return func(c *config) { c.onError = f } }

const (
	maxDelay = 365 * 24 * time.Hour
	minLease = 100 * time.Millisecond
	maxLease = 24 * time.Hour
	minPer   = time.Second
	maxPer   = 24 * time.Hour
	// maxConcurrency bounds what is allocated for all that may have begun.
	maxConcurrency = 100_000
)

func newConfig(opts []WatcherOption) *config {
	c := &config{
		Config: engine.Config{
			Concurrency: 64, PartitionConcurrency: maxConcurrency, MaxPartitions: 1000, Lease: 30 * time.Second, PollMin: 100 * time.Millisecond, PollMax: 5 * time.Second,
			DrainTimeout: 30 * time.Second, Log: slog.Default(), Jitter: jitter,
		},
		maxRetries: 5, requeue: time.Second, backoff: defaultBackoff, onError: func(Item, error) {},
	}
	for _, o := range opts {
		if o == nil {
			c.nilOption = true
			continue
		}
		o(c)
	}
	c.Limits = sqlstore.Map(c.limits, func(l *Limit) sqlstore.Limit { return sqlstore.Limit(*l) })
	return c
}

func (c *config) check() error {
	switch {
	case c.nilOption:
		return invalid("WatcherOption", "is nil; leave it out")
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return invalid("Concurrency", "%d is not in 1..%d", c.Concurrency, maxConcurrency)
	case c.Lease < minLease || c.Lease > maxLease:
		return invalid("Lease", "%v is not in %v..%v", c.Lease, minLease, maxLease)
	case c.PollMin < time.Millisecond:
		return invalid("Poll", "%v is below 1ms", c.PollMin)
	case c.PollMax < c.PollMin:
		return invalid("Poll", "at most every %v is below at least every %v", c.PollMax, c.PollMin)
	case c.MaxPartitions < 1:
		return invalid("MaxPartitions", "%d is below 1", c.MaxPartitions)
	case c.PartitionConcurrency < 1:
		return invalid("PartitionConcurrency", "%d is below 1", c.PartitionConcurrency)
	case c.maxRetries < -1:
		return invalid("MaxRetries", "%d is below -1", c.maxRetries)
	case c.requeue < 0 || c.requeue > maxDelay:
		return invalid("Requeue", "%v is not in 0..%v", c.requeue, maxDelay)
	case c.DrainTimeout < 0:
		return invalid("DrainTimeout", "%v is negative", c.DrainTimeout)
	case c.backoff == nil:
		return invalid("Backoff", "is nil")
	case c.wakeupsGiven && c.wakeups == nil:
		return invalid("Wakeups", "the connection is nil")
	case c.tracerGiven && c.tracers == nil:
		return invalid("Tracer", "is nil")
	case c.Log == nil:
		return invalid("Logger", "is nil")
	case c.onError == nil:
		return invalid("OnError", "is nil")
	}
	return checkLimits(c.limits)
}

func checkLimits(limits []Limit) error {
	gates := map[int]bool{}
	for _, l := range limits {
		wrong := ""
		switch {
		case gates[l.Gate]:
			wrong = "is given twice; give one limit for a gate"
		case l.Concurrency < 0 || l.Rate < 0:
			wrong = fmt.Sprintf("has a Concurrency of %d and a Rate of %d; neither is negative", l.Concurrency, l.Rate)
		case l.Concurrency == 0 && l.Rate == 0:
			wrong = "has neither Concurrency nor Rate; leave it out"
		case l.Rate == 0 && l.Per != 0:
			wrong = fmt.Sprintf("has a Per of %v but no Rate", l.Per)
		case l.Rate > 0 && (l.Per < minPer || l.Per > maxPer):
			wrong = fmt.Sprintf("has a Per of %v, which is not in %v..%v", l.Per, minPer, maxPer)
		}
		if wrong != "" {
			return invalid("Limits", "gate %d %s", l.Gate, wrong)
		}
		gates[l.Gate] = true
	}
	return nil
}

func defaultBackoff(attempt int) time.Duration {
	return jitter(min(time.Minute, time.Second<<min(max(attempt-1, 0), 6)))
}

// jitter is d, a fifth more or less.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(max(2*d/5, 1))
}
