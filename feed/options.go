package feed

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/feed/internal/engine"
)

type config struct {
	engine.Config
	maxRetries                    int
	requeue                       time.Duration
	backoff                       func(int) time.Duration
	onError                       func(Item, error)
	wakeups                       *nats.Conn
	wakeupsGiven, nilOption       bool
	maxCrashesGiven, timeoutGiven bool
}

// WatcherOption changes how a [Watcher] works. If an option is given twice, the last one applies.
type WatcherOption func(*config)

// Concurrency sets the maximum number of items that the watcher has begun and not yet saved, 1 to 100,000. The default is 64. The watcher may
// read as many more items ahead.
func Concurrency(n int) WatcherOption { return func(c *config) { c.Concurrency = n } }

// Lease sets how long a watcher holds a partition after it died, 100 ms to 24 h by the database's clock. The default is 30 s. A live watcher
// renews its leases after a third of that, however long handlers take. Lease is also the time limit of each of the watcher's statements, if it
// is more than 10 s; otherwise that is 10 s. A statement that exceeds it is cancelled and tried again.
func Lease(d time.Duration) WatcherOption { return func(c *config) { c.Lease = d } }

// Poll sets how often the watcher queries the database for work. While there is work the interval is least. Without work it grows up to most.
// Both vary at random by up to a fifth. least is at least 1 ms, and most is not below least. The defaults are 100 ms and 5 s.
func Poll(least, most time.Duration) WatcherOption {
	return func(c *config) { c.PollMin, c.PollMax = least, most }
}

// MaxPartitions sets the maximum number of leases, 1 or more. The default is 1,000. A watcher leases only partitions with work. If others wait,
// it releases a partition that it has held for the time of [Lease], after the items that it has begun. So if handlers take long, set a number
// above that of the partitions with work.
func MaxPartitions(n int) WatcherOption { return func(c *config) { c.MaxPartitions = n } }

// PartitionConcurrency sets the maximum number of items of one partition that are begun and not yet saved, 1 or more. The default is that of
// [Concurrency]. A partition has one owner, so the limit holds over all watchers with the option: a watcher releases a partition only after its
// handlers have returned. There is one exception. When DrainTimeout is over, or the watcher learns that its lease has ended, it cancels the
// contexts of its handlers. A handler that ignores its context, or whose watcher cannot reach the database, can then run at the same time as
// handlers of the next owner.
func PartitionConcurrency(n int) WatcherOption {
	return func(c *config) { c.PartitionConcurrency = n }
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

// MaxCrashes makes the watcher give up an item that ends its process: by os.Exit, a fatal error, or memory that runs out. If n attempts in a row
// began and did not end, 1 or more, the item is Failed, with the reason "its process ended n times while it was handled".
//
// An item is suspected if its partition was taken over from a watcher that did not return its lease. The begin of each attempt at such an item is
// stored before the handler begins, and cleared with the result, whatever that is. Other items cost nothing more. So the first process that an
// item ends is not counted. A watcher begins at most one item at a time that has a stored begin without an end. Others go on beside it. Items
// that were handled beside the culprit once are not counted with it again; one can be if another item ends the process for the first time
// meanwhile, so give 2 or more. A process counts as ended if it was stopped or cut off for longer than [Lease], or a handler ignored the end of
// its context for longer than [DrainTimeout]. Give the option to each watcher: one without it neither stores begins nor gives items up, but
// clears what others have stored with each result. None by default.
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

// DrainTimeout sets how long handlers may run after Run's context has ended, before theirs end. 0 means not at all. The default is 30 s.
func DrainTimeout(d time.Duration) WatcherOption { return func(c *config) { c.DrainTimeout = d } }

// Steal makes a watcher that finds no free partition request one from the watcher with the most leases, as long as that one has at least two
// more leases than itself. The other watcher begins no further item of the partition, finishes those that it has begun, and then releases it, so
// no item is repeated. While the watcher waits for a partition, it queries the database twice a second. Off by default.
func Steal() WatcherOption { return func(c *config) { c.Steal = true } }

// Wakeups makes the watcher look for work when a message arrives on [WakeupSubject], and publish there the partitions that this Store changes.
// None by default. Changes by this process, and on PostgreSQL those by other processes, wake the watcher without it. While NATS is down, the
// watcher finds work by polling.
func Wakeups(nc *nats.Conn) WatcherOption {
	return func(c *config) { c.wakeups, c.wakeupsGiven = nc, true }
}

// Logger sets the logger for failed attempts, lost leases and errors of the database. The default is [slog.Default]. The error of an attempt is
// logged by its first line, or by its LogValue if it is a [slog.LogValuer].
func Logger(l *slog.Logger) WatcherOption { return func(c *config) { c.Log = l } }

// OnError sets a function that is called for each failed attempt. It is also called with [ErrConflict] for each result that was not saved,
// because the lease was lost or another program wrote the item. It is called by several goroutines and must not block for long. A panic in it is
// logged. None by default.
func OnError(f func(Item, error)) WatcherOption { return func(c *config) { c.onError = f } }

const (
	maxDelay = 365 * 24 * time.Hour
	minLease = 100 * time.Millisecond
	maxLease = 24 * time.Hour
	// maxConcurrency bounds what is allocated for all that may have begun.
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

// check returns an error for the first option that is wrong.
func (c *config) check() error {
	for _, o := range []struct {
		name  string
		wrong bool
		value any
		why   string
	}{
		{"WatcherOption", c.nilOption, "an option", "is nil; leave it out"},
		{"Concurrency", c.Concurrency < 1 || c.Concurrency > maxConcurrency, c.Concurrency, fmt.Sprintf("is not in 1..%d", maxConcurrency)},
		{"Lease", c.Lease < minLease || c.Lease > maxLease, c.Lease, fmt.Sprintf("is not in %v..%v", minLease, maxLease)},
		{"Poll", c.PollMin < time.Millisecond, c.PollMin, "is below 1ms"},
		{"Poll", c.PollMax < c.PollMin, c.PollMax, fmt.Sprintf("is the longest pause, and below the shortest of %v", c.PollMin)},
		{"MaxPartitions", c.MaxPartitions < 1, c.MaxPartitions, "is below 1"},
		{"PartitionConcurrency", c.PartitionConcurrency < 1, c.PartitionConcurrency, "is below 1"},
		{"MaxRetries", c.maxRetries < -1, c.maxRetries, "is below -1"},
		{"HandlerTimeout", c.timeoutGiven && c.HandlerTimeout < time.Millisecond, c.HandlerTimeout, "is below 1ms; leave it out for no limit"},
		{"MaxCrashes", c.maxCrashesGiven && c.MaxCrashes < 1, c.MaxCrashes, "is below 1; leave it out for no limit"},
		{"Requeue", c.requeue < 0 || c.requeue > maxDelay, c.requeue, fmt.Sprintf("is not in 0..%v", maxDelay)},
		{"DrainTimeout", c.DrainTimeout < 0, c.DrainTimeout, "is negative"},
		{"Backoff", c.backoff == nil, "the function", "is nil"},
		{"Wakeups", c.wakeupsGiven && c.wakeups == nil, "the connection", "is nil"},
		{"Logger", c.Log == nil, "the logger", "is nil"},
		{"OnError", c.onError == nil, "the function", "is nil"},
	} {
		if o.wrong {
			return invalid(o.name, "%v %s", o.value, o.why)
		}
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
