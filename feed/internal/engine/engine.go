// Package engine runs one watcher: it leases partitions, reads their items, lets a [Handler] make attempts, and saves the results. It uses rows, and
// no types of package feed. All its statements are in [Tables].
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	// FetchMost is the maximum number of partitions that one fetch reads.
	FetchMost = 64
	// fetchRows is about the maximum number of items that one fetch reads.
	fetchRows = 4000
	// fetchBytes bounds their data, except that of the last item of each partition.
	fetchBytes = 16 << 20
	// settleMost is how many partitions are settled at a time, and retryMost is of how many the parked results are saved at a time.
	settleMost, retryMost = 8, 4
	// graceAfterDrain is how long handlers may take to return after their context was cancelled. handBack is how long the return of grants may take
	// after all leases are released.
	graceAfterDrain = 500 * time.Millisecond
	handBack        = 300 * time.Millisecond
	// statementLeast is the minimum of Engine.statement.
	statementLeast = 10 * time.Second
	// errorPause is the first pause after an error of the database, maxPause the longest.
	errorPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// renewals is how often a lease is renewed in its length.
	renewals = 3
	// wakesMost is how many wake-ups may wait for the engine. If there are more, it looks at all partitions.
	wakesMost = 1024
)

// Leases has an engine's statements about leases.
type Leases interface {
	Acquire(ctx context.Context, t sqlstore.Terms, n int, holds []string) ([]sqlstore.Taken, error)
	Waiting(ctx context.Context, t sqlstore.Terms, most int) (int, error)
	Soonest(ctx context.Context, t sqlstore.Terms) (time.Duration, error)
	Renew(ctx context.Context, t sqlstore.Terms, leases []sqlstore.Lease) (map[sqlstore.Lease]sqlstore.Hold, error)
	Report(ctx context.Context, t sqlstore.Terms, r sqlstore.Report) ([]sqlstore.Cancel, error)
	Release(ctx context.Context, t sqlstore.Terms, leases []sqlstore.Taken) error
	Claim(ctx context.Context, t sqlstore.Terms) (bool, error)
}

// Tables has an engine's statements. A [sqlstore.Store] implements it and documents the methods. Tests also use a recorder around one, and a model.
type Tables interface {
	Leases

	Fetch(ctx context.Context, t sqlstore.Terms, wants []sqlstore.Want) ([]sqlstore.Item, error)
	Save(ctx context.Context, t sqlstore.Terms, results []sqlstore.Result) ([]bool, error)
	Settle(ctx context.Context, t sqlstore.Terms, l sqlstore.Lease) (sqlstore.Outcome, int, error)
	Grant(ctx context.Context, t sqlstore.Terms, asks []sqlstore.Ask) ([]sqlstore.Grant, error)

	Subscribe(f func(partition string)) (cancel func())
	Listen(ctx context.Context, f func(partition string)) error
}

// Handler makes the attempts. Its methods are called by several goroutines.
type Handler interface {
	// Process makes an attempt at an item. It returns an error, or a result, whose lease the engine sets. It does not panic, but may end its goroutine.
	Process(ctx context.Context, it *sqlstore.Item) (sqlstore.Result, error)
	// Failed returns the result of an item after a failed attempt.
	Failed(it *sqlstore.Item, err error) sqlstore.Result
	// Conflict reports a result that was not saved.
	Conflict(it *sqlstore.Item)
}

// Config is the options of a watcher.
type Config struct {
	Concurrency, MaxPartitions            int
	HandlerTimeout                        time.Duration    // 0: none
	MaxCrashes                            int              // 0: attempts that did not end are not counted
	PartitionConcurrency                  int              // items of a partition that have begun and are not saved
	Limits                                []sqlstore.Limit // at most one for a gate
	Lease, PollMin, PollMax, DrainTimeout time.Duration
	Manual, AutoClose, Steal              bool
	Log                                   *slog.Logger
	Jitter                                func(time.Duration) time.Duration
}

// Engine is one Run. Its state belongs to the goroutine of loop, which does no I/O. Each statement and each handler runs on its own goroutine, which
// posts the result.
type Engine struct {
	Config
	tables  Tables
	handler Handler
	tally   *Tally
	terms   sqlstore.Terms
	// statement is how long a statement may take. Without a bound, a statement whose connection broke unnoticed would last until TCP gives up, after a
	// quarter of an hour, and most kinds of statements run one at a time.
	statement time.Duration

	db       context.Context // of statements; it outlives Run's
	stopDB   context.CancelFunc
	handlers context.Context // of handlers
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup // all goroutines but handlers
	done     chan struct{}
	events   chan func()
	results  chan *attempt
	wakes    chan string // the partitions that have changed since the engine looked
	missed   atomic.Bool // wakes was full

	held    map[string]*hold
	lanes   lanes    // the first has the gates without a limit
	turn    int      // the lane whose items begin, and are fetched, first
	drained []*hold  // to settle
	leaving []*hold  // to give back
	parked  []*hold  // with results to save that were parked
	active  int      // begun, not saved
	suspect *attempt // of those, the one that may have ended a process
	fetches bound    // of a fetch
	saves   bound    // of a save

	fetching, scanning, renewing, reporting, asking, starting, saving, retrying, resting, settling, releasing int // statements that run or wait to run

	pause time.Duration // after errors of the database

	running map[*attempt]struct{} // handlers
	slow    int                   // of them, when they were last counted
	// reported is whether the last report has some of them.
	reported bool

	timers   timers
	stopping bool
}

var (
	errLost    = errors.New("feed: the lease is lost")
	errDrained = errors.New("feed: drain timeout")
	// ErrExited is the outcome of a handler that called runtime.Goexit, as FailNow of a test does.
	ErrExited = errors.New("the handler's goroutine exited")
)

// New returns an engine. The caller must call Run, which ends it.
func New(ctx context.Context, c Config, t Tables, h Handler, tally *Tally) *Engine {
	now := time.Now()
	e := &Engine{
		Config: c, tables: t, handler: h, tally: tally, statement: max(c.Lease, statementLeast),
		terms: sqlstore.Terms{Owner: nuid.Next(), Length: c.Lease, Manual: c.Manual, AutoClose: c.AutoClose},
		done:  make(chan struct{}), events: make(chan func(), 64), results: make(chan *attempt, c.Concurrency),
		wakes: make(chan string, wakesMost), held: map[string]*hold{}, running: map[*attempt]struct{}{}, lanes: newLanes(c.Limits),
		timers: timers{scan: now, interval: c.PollMin, renew: now.Add(c.Lease / renewals), sweep: now.Add(c.PollMax), slow: now.Add(slowEvery)},
	}
	e.db, e.stopDB = context.WithCancel(context.WithoutCancel(ctx))
	e.handlers, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return e
}

// Run processes items until ctx has ended and all leases are released. It returns false if that takes too long. The leases that it still holds then
// expire, and their handlers may still run.
func (e *Engine) Run(ctx context.Context) (drained bool) {
	defer e.tables.Subscribe(e.Wake)()
	e.wg.Go(e.listen)
	if drained = e.loop(ctx); drained {
		e.returnGrants()
	}
	close(e.done)
	e.stopDB()
	e.cancel(errDrained)
	e.wg.Wait()
	e.tally.Leases.Add(-int64(len(e.held)))
	e.tally.Running.Add(-int64(e.active))
	e.tally.Slow.Add(-int64(e.slow))
	return drained
}

// loop runs until everything is released, or the time for that is over.
func (e *Engine) loop(ctx context.Context) (drained bool) {
	stop := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	inTime := true
	for {
		now := time.Now()
		if stop != nil && ctx.Err() != nil { // even if another event has arrived, too: nothing more begins
			stop = nil
			e.stop()
		}
		if e.stopping && e.active == 0 && len(e.held) == 0 && e.scanning == 0 && e.asking == 0 {
			return inTime
		}
		if e.stopping && !now.Before(e.timers.cancel) && e.handlers.Err() == nil {
			inTime = e.active == 0
			e.cancel(errDrained)
		}
		if e.stopping && !now.Before(e.timers.abandon) {
			return false
		}
		e.pump(now)
		timer.Reset(e.timers.next(now))
		results := e.results
		if e.saving > 0 {
			results = nil
		}
		select {
		case a := <-results:
			e.save(a)
		case f := <-e.events:
			f()
			for range len(e.events) { // so that slots that they free are used at once
				(<-e.events)()
			}
		case partition := <-e.wakes:
			e.woken(partition)
		case <-timer.C:
		case <-stop:
		}
	}
}

// post makes loop call f, unless loop has ended.
func (e *Engine) post(f func()) {
	select {
	case e.events <- f:
	case <-e.done:
	}
}

// async runs a statement on its own goroutine, and then its result on loop. running counts the running statements of the kind.
func (e *Engine) async(running *int, do func(ctx context.Context) func()) {
	*running++
	e.wg.Go(func() {
		ctx, cancel := context.WithTimeout(e.db, e.statement)
		defer cancel()
		then := do(ctx)
		e.post(func() {
			*running--
			then()
		})
	})
}

// pump starts everything that can start. The timers come first, so that due items are fetched in the same round: the next one may come seconds later.
func (e *Engine) pump(now time.Time) {
	if !e.stopping {
		e.due(now)
	}
	e.begin(now)
	reportSlow(e, now)
	e.fetch(now)
	e.retry()
	e.askForGrants(now)
	e.settle()
	e.giveBack()
	e.renew(now)
	if !e.stopping {
		e.scan(now)
	}
}

// begin starts the handlers of items that may begin, from each lane in turn.
func (e *Engine) begin(now time.Time) {
	for i := range e.lanes {
		started := e.lanes[(e.turn+i)%len(e.lanes)].take(e, now, e.Concurrency-e.active)
		e.active += len(started)
		e.tally.Running.Add(int64(len(started)))
		startAll(e, started)
	}
	e.turn++
}

// stop begins the shutdown: nothing more begins, and each lease is released after its last result.
func (e *Engine) stop() {
	now := time.Now()
	e.stopping = true
	e.timers.cancel = now.Add(e.DrainTimeout)
	e.timers.abandon = e.timers.cancel.Add(graceAfterDrain)
	for _, h := range e.held {
		e.relinquish(h)
	}
}
