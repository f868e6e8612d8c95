package feed

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

type config struct {
	engine.Config
	maxRetries                           int
	requeue                              time.Duration
	backoff                              func(int) time.Duration
	onError                              func(Item, error)
	wakeups                              *nats.Conn
	tracers                              trace.TracerProvider
	wakeupsGiven, tracerGiven, nilOption bool
	maxCrashesGiven, timeoutGiven        bool
}

// WatcherOption changes how a [Watcher] works. If an option is given twice, the last one applies.
type WatcherOption func(*config)

// Concurrency sets the maximum number of items that the watcher has begun and not yet saved, 1 to 100,000. The default is 64. The watcher may
// read as many more items ahead.
func Concurrency(n int) WatcherOption { return func(c *config) { c.Concurrency = n } }

// Lease sets how long a watcher holds a partition after it died, 100 ms to 24 h by the database's clock. The default is 30 s. A live watcher renews
// its leases after a third of that, however long handlers take. Lease is also the time limit of each of the watcher's statements, but that is at
// least 10 s. A statement that exceeds it is cancelled and retried.
func Lease(d time.Duration) WatcherOption { return func(c *config) { c.Lease = d } }

// Poll sets how often the watcher queries the database for work. While there is work the interval is least. Without work it grows up to most.
// Both vary at random by up to a fifth. least is at least 1 ms, and most is not below least. The defaults are 100 ms and 5 s.
func Poll(least, most time.Duration) WatcherOption {
	return func(c *config) { c.PollMin, c.PollMax = least, most }
}

// MaxPartitions sets the maximum number of leases, 1 or more. The default is 1,000. A watcher leases only partitions with work. If others wait, it
// releases a partition that it has held for the time of [Lease], after it has finished the items that it has begun. So if handlers take long, set a
// number greater than that of partitions with work.
func MaxPartitions(n int) WatcherOption { return func(c *config) { c.MaxPartitions = n } }

// PartitionConcurrency sets the maximum number of items of one partition that are begun and not yet saved, 1 or more. The default is that of
// [Concurrency]. A partition has one owner, so the limit holds over all watchers with the option: a watcher releases a partition only after its
// handlers have returned. There is one exception. When DrainTimeout is over, or the watcher learns that its lease has ended, it cancels the
// contexts of its handlers. A handler that ignores its context, or whose watcher cannot reach the database, can then run at the same time as
// handlers of the next owner.
func PartitionConcurrency(n int) WatcherOption {
	return func(c *config) { c.PartitionConcurrency = n }
}

// Limit limits the work at a gate, over all partitions and all watchers that have the same [Limits]. Concurrency, Rate or both are set.
type Limit struct {
	Gate int
	// Concurrency is the maximum number of items at the gate that are begun and not yet saved. 0 means no limit.
	Concurrency int
	// Rate is the maximum number of attempts that begin in any window of Per, which is 1 s to 24 h by the database's clock. 0 means no limit.
	Rate int
	Per  time.Duration
}

// Limits sets limits of gates, at most one for each gate. By default there are none. The database must be SQLite, PostgreSQL or SQL Server. Give
// the same limits to each watcher. While they differ, each watcher obeys its own numbers, so the largest ones apply, and attempts are counted
// for the shortest Per. A watcher without a limit, or with 0 for a number, is neither counted nor limited by it. While several watchers wait,
// each gets a fair share. Up to a tenth of a rate stays unused, so that no window exceeds it. An attempt begins when the watcher takes the item,
// just before it calls the handler.
//
// After a watcher has died, its share of Concurrency stays counted for the time of [Lease], and its attempts for Per. If it waited, one attempt
// is kept for it for the time of Lease. Running handlers are no longer counted if their watcher was stopped, could not reach the database, or
// waited for the database's locks, for longer than Lease. The same holds after [ErrDrainTimeout].
func Limits(l ...Limit) WatcherOption {
	return func(c *config) {
		c.Limits = sqlstore.Map(l, func(l *Limit) sqlstore.Limit { return sqlstore.Limit(*l) })
	}
}

// ManualCheckpoint makes the watcher leave partitions at their gates until the program calls [Store.Advance]. Off by default.
func ManualCheckpoint() WatcherOption { return func(c *config) { c.Manual = true } }

// AutoClose makes the watcher close a sealed partition when all of its items are Complete. Off by default.
func AutoClose() WatcherOption { return func(c *config) { c.AutoClose = true } }

// MaxRetries sets the number of attempts of a step after its first. 0 means no retry, and -1 no limit. The default is 5. When the last attempt
// fails, the item is Failed.
func MaxRetries(n int) WatcherOption { return func(c *config) { c.maxRetries = n } }

// HandlerTimeout sets how long an attempt may take, 1 ms or more. Then its context ends, with the cause "the attempt took over 1m0s". An error that
// the handler returns after that is a failed attempt, with the cause before the error. Any other response counts. A handler that ignores its
// context goes on, and occupies a slot of Concurrency: the watcher logs it 10 s later, and again when its time has doubled (see [Stats].Slow). No
// limit by default; a handler is then logged after 10 minutes.
func HandlerTimeout(d time.Duration) WatcherOption {
	return func(c *config) { c.HandlerTimeout, c.timeoutGiven = d, true }
}

// MaxCrashes makes the watcher give up an item that ends its process: by os.Exit, a fatal error, or memory that runs out. If n attempts in a row, 1
// or more, began and did not end, the item is Failed, with the reason "its process ended n times while it was handled".
//
// An item is suspected if its partition was taken over from a watcher that did not return its lease. For such items alone, the watcher stores the
// begin of each attempt before the handler begins, and clears it with any result. So the first process that an item ends is not counted. A watcher
// runs at most one item at a time that has a stored begin without an end, beside other items. So an item that once ran beside the culprit is not
// counted with it again. It can be if another item ends the process for the first time meanwhile, so give 2 or more. A process counts as ended if it
// was stopped or cut off for longer than [Lease], or a handler ignored the end of its context for longer than [DrainTimeout]. Give the option to each
// watcher: a watcher without it neither stores begins nor gives up items, but clears stored begins with each result. None by default.
func MaxCrashes(n int) WatcherOption {
	return func(c *config) { c.MaxCrashes, c.maxCrashesGiven = n, true }
}

// Backoff sets a function that returns the least delay after a failed attempt, given its number, from 1. A delay of 0 or less means none, and
// the maximum is a year. The default, also if f panics, is 1 s, doubled with each attempt up to 1 min, and varied at random by up to a fifth.
func Backoff(f func(attempt int) time.Duration) WatcherOption {
	return func(c *config) { c.backoff = f }
}

// Requeue sets the delay before an item is processed again after a Response that left it at its gate, 0 to a year. The default is 1 s.
func Requeue(d time.Duration) WatcherOption { return func(c *config) { c.requeue = d } }

// DrainTimeout sets how long handlers may run after Run's context has ended, before their contexts end. 0 means not at all. The default is 30 s.
func DrainTimeout(d time.Duration) WatcherOption { return func(c *config) { c.DrainTimeout = d } }

// Steal makes a watcher that finds no free partition request one from the watcher with the most leases, as long as that one has at least two
// more leases than itself. The other watcher begins no further item of the partition, finishes those that it has begun, and then releases it, so
// no item is repeated. While the watcher waits for a partition, it queries the database twice a second. Off by default.
func Steal() WatcherOption { return func(c *config) { c.Steal = true } }

// Wakeups makes the watcher look for work when a message arrives on [WakeupSubject], and publish there the partitions that this Store changes. By
// default, NATS is not used. Changes by this process, and on PostgreSQL by other processes, wake the watcher without it. While NATS is down, the
// watcher finds work by polling.
func Wakeups(nc *nats.Conn) WatcherOption {
	return func(c *config) { c.wakeups, c.wakeupsGiven = nc, true }
}

// Logger sets the logger for failed attempts, lost leases and errors of the database. The default is [slog.Default]. The error of an attempt is
// logged by its first line, or by its LogValue if it is a [slog.LogValuer].
func Logger(l *slog.Logger) WatcherOption { return func(c *config) { c.Log = l } }

// Tracer creates a span named process for each attempt, with the IDs of partition and item, the gate and the attempt. The processors that send
// items over HTTP or JetStream pass the trace on in the header traceparent. None by default.
func Tracer(tp trace.TracerProvider) WatcherOption {
	return func(c *config) { c.tracers, c.tracerGiven = tp, true }
}

// OnError sets a function that is called for each failed attempt. It is also called with [ErrConflict] for each result that was not saved,
// because the lease was lost or another program wrote the item. It is called by several goroutines and must not block for long. A panic in it is
// logged. None by default.
func OnError(f func(Item, error)) WatcherOption { return func(c *config) { c.onError = f } }

const (
	maxDelay = 365 * 24 * time.Hour
	minLease = 100 * time.Millisecond
	maxLease = 24 * time.Hour
	minPer   = time.Second
	maxPer   = 24 * time.Hour
	// maxConcurrency bounds the memory for the items that may have begun.
	maxConcurrency = 100_000
)

func newConfig(opts []WatcherOption) *config {
	c := &config{
		Config: engine.Config{
			Concurrency: 64, PartitionConcurrency: maxConcurrency, MaxPartitions: 1000, Lease: 30 * time.Second, PollMin: 100 * time.Millisecond,
			PollMax:      5 * time.Second,
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
	return c
}

// check returns the error of the first option that cannot be used.
func (c *config) check() error {
	return cmp.Or(
		check(!c.nilOption, "WatcherOption", "is nil; leave it out"),
		check(c.Concurrency >= 1 && c.Concurrency <= maxConcurrency, "Concurrency", "%d is not in 1..%d", c.Concurrency, maxConcurrency),
		check(c.Lease >= minLease && c.Lease <= maxLease, "Lease", "%v is not in %v..%v", c.Lease, minLease, maxLease),
		check(c.PollMin >= time.Millisecond, "Poll", "%v is below 1ms", c.PollMin),
		check(c.PollMax >= c.PollMin, "Poll", "at most every %v is below at least every %v", c.PollMax, c.PollMin),
		check(c.MaxPartitions >= 1, "MaxPartitions", "%d is below 1", c.MaxPartitions),
		check(c.PartitionConcurrency >= 1, "PartitionConcurrency", "%d is below 1", c.PartitionConcurrency),
		check(c.maxRetries >= -1, "MaxRetries", "%d is below -1", c.maxRetries),
		check(!c.timeoutGiven || c.HandlerTimeout >= time.Millisecond, "HandlerTimeout", "%v is below 1ms; leave it out for no limit", c.HandlerTimeout),
		check(!c.maxCrashesGiven || c.MaxCrashes >= 1, "MaxCrashes", "%d is below 1; leave it out for no limit", c.MaxCrashes),
		check(c.requeue >= 0 && c.requeue <= maxDelay, "Requeue", "%v is not in 0..%v", c.requeue, maxDelay),
		check(c.DrainTimeout >= 0, "DrainTimeout", "%v is negative", c.DrainTimeout),
		check(c.backoff != nil, "Backoff", "is nil"),
		check(!c.wakeupsGiven || c.wakeups != nil, "Wakeups", "the connection is nil"),
		check(!c.tracerGiven || c.tracers != nil, "Tracer", "is nil"),
		check(c.Log != nil, "Logger", "is nil"),
		check(c.onError != nil, "OnError", "is nil"),
		checkLimits(c.Limits),
	)
}

func checkLimits(limits []sqlstore.Limit) error {
	gates := map[int]bool{}
	for _, l := range limits {
		err := cmp.Or(
			check(!gates[l.Gate], "Limits", "gate %d is given twice; give one limit for a gate", l.Gate),
			check(l.Concurrency >= 0 && l.Rate >= 0, "Limits", "gate %d has a Concurrency of %d and a Rate of %d; neither is negative",
				l.Gate, l.Concurrency, l.Rate),
			check(l.Concurrency > 0 || l.Rate > 0, "Limits", "gate %d has neither Concurrency nor Rate; leave it out", l.Gate),
			check(l.Rate > 0 || l.Per == 0, "Limits", "gate %d has a Per of %v but no Rate", l.Gate, l.Per),
			check(l.Rate == 0 || l.Per >= minPer && l.Per <= maxPer, "Limits", "gate %d has a Per of %v, which is not in %v..%v",
				l.Gate, l.Per, minPer, maxPer),
		)
		if err != nil {
			return err
		}
		gates[l.Gate] = true
	}
	return nil
}

func defaultBackoff(attempt int) time.Duration {
	return jitter(min(time.Minute, time.Second<<min(max(attempt-1, 0), 6)))
}

// jitter returns d, varied at random by up to a fifth.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(max(2*d/5, 1))
}
