package feed

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	// fetchMost is how many partitions one fetch reads.
	fetchMost = 64
	// fetchRows is how many items one fetch reads, about.
	fetchRows = 4000
	// settleMost is how many partitions are settled at a time.
	settleMost = 8
	// graceAfterDrain is how long handlers have to return after their context was cancelled, and handBack how long
	// the database has after that to take the leases back.
	graceAfterDrain = 500 * time.Millisecond
	handBack        = 300 * time.Millisecond
	// statementLeast is how long a statement may take at least; see statementTime.
	statementLeast = 10 * time.Second
	// errorPause is the pause after an error of the database, at first.
	errorPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// tables is what an engine asks of the database. A [Store] has one; tests have a recorder around one, and a model.
type tables interface {
	// Acquire leases at most n partitions that have work, and Waiting is how many there are, up to most.
	Acquire(ctx context.Context, t sqlstore.Terms, n int, holds map[string]bool) ([]sqlstore.Lease, error)
	Waiting(ctx context.Context, t sqlstore.Terms, most int) (int, error)
	Soonest(ctx context.Context, t sqlstore.Terms) (time.Duration, error)
	Renew(ctx context.Context, t sqlstore.Terms, leases []sqlstore.Lease) (held, claimed map[sqlstore.Lease]bool, err error)
	Release(ctx context.Context, t sqlstore.Terms, leases []sqlstore.Lease) error
	Claim(ctx context.Context, t sqlstore.Terms) (bool, error)

	Fetch(ctx context.Context, t sqlstore.Terms, wants []sqlstore.Want) ([]sqlstore.Item, error)
	Save(ctx context.Context, t sqlstore.Terms, results []sqlstore.Result) ([]bool, error)
	Settle(ctx context.Context, t sqlstore.Terms, l sqlstore.Lease) (sqlstore.Outcome, int, error)

	// subscribe has f called for each partition that this process changes, and Listen for what others do, until
	// ctx or the connection ends. It returns nil at once where the database cannot tell. f does not block.
	subscribe(f func(partition string)) (cancel func())
	Listen(ctx context.Context, f func(partition string)) error
	// Announce has all these called, with the partition "": any may have changed.
	Announce(ctx context.Context) error
}

// database is the tables of a Store.
type database struct {
	*sqlstore.Store
	hub *hub
}

func (d database) subscribe(f func(partition string)) (cancel func()) { return d.hub.subscribe(f) }

// engine is one Run. Its state belongs to the goroutine of loop, which does no I/O: what asks the database or runs a
// handler is a goroutine of its own, and posts what came of it.
type engine struct {
	*config
	tables tables
	counts *tally
	proc   Processor
	batch  int // items of a call; 0: one
	terms  sqlstore.Terms

	db       context.Context // of statements; it outlives Run's
	stopDB   context.CancelFunc
	handlers context.Context // of handlers
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup // all goroutines but handlers
	done     chan struct{}
	events   chan func()
	results  chan attempt
	wakes    wakes

	held    map[string]*hold
	hungry  []*hold // to fetch for
	drained []*hold // to settle
	leaving []*hold // to give back
	queue   []task  // fetched, not begun
	active  int     // begun, not saved

	fetching, scanning, claiming, renewing bool
	settling                               int
	pause                                  time.Duration // after errors of the database

	timers   timers
	stopping bool
	lastErr  error
}

// hold is a lease that the watcher has, and what it knows of the partition.
type hold struct {
	sqlstore.Lease
	since   time.Time
	trusted time.Time // when the lease ends, by this machine's monotonic clock, early
	ctx     context.Context
	cancel  context.CancelCauseFunc

	after    int64 // the seq up to which items were fetched in this pass
	ended    bool  // the pass found the end
	redo     bool  // another pass is wanted
	inFlight map[string]struct{}
	// savedMeanwhile has the versions of items that were saved while a fetch was under way, which may have read them
	// before that.
	savedMeanwhile map[string]int64

	gone, leave                bool
	isHungry, isDrained, isOut bool // in which of the engine's lists it is
	fetching, settling         bool
}

type task struct {
	h  *hold
	it Item
}

// attempt is an item whose handler has returned.
type attempt struct {
	h         *hold
	item      Item
	result    sqlstore.Result
	abandoned bool // its outcome counts for nothing
}

var (
	errLost    = errors.New("feed: the lease is lost")
	errDrained = errors.New("feed: drain timeout")
)

func newEngine(ctx context.Context, w *Watcher) *engine {
	e := &engine{
		config: w.config, tables: w.tables, counts: &w.counts, proc: w.config.traced(w.processor),
		terms: sqlstore.Terms{Owner: nuid.Next(), Length: w.config.lease, Manual: w.config.manual, AutoClose: w.config.autoClose},
		done:  make(chan struct{}), events: make(chan func(), 64), results: make(chan attempt, w.config.concurrency),
		held: map[string]*hold{},
	}
	if b, ok := e.proc.(BatchProcessor); ok && b.BatchSize() > 1 {
		e.batch = b.BatchSize()
	}
	e.wakes.signal = make(chan struct{}, 1)
	e.db, e.stopDB = context.WithCancel(context.WithoutCancel(ctx))
	e.handlers, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	now := time.Now()
	e.timers = timers{scan: now, interval: e.pollMin, renew: now.Add(e.lease / 3), sweep: now.Add(e.pollMax)}
	e.wg.Go(e.saver)
	return e
}

// loop runs until ctx has ended and all is handed back, or the time for that is over: then it returns false.
func (e *engine) loop(ctx context.Context) (drained bool) {
	stop := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	inTime := true
	for {
		now := time.Now()
		if stop != nil && ctx.Err() != nil { // also where something else has come, too: nothing more is begun
			stop = nil
			e.stop()
		}
		if e.stopping && e.active == 0 && len(e.held) == 0 && !e.scanning {
			return inTime
		}
		if e.stopping && !now.Before(e.timers.cancel) && e.handlers.Err() == nil {
			inTime = e.active == 0
			e.cancel(errDrained)
		}
		if e.stopping && !now.Before(e.timers.abandon) {
			e.abandon()
			return false
		}
		e.pump(now)
		timer.Reset(e.timers.next(now, e.stopping))
		select {
		case f := <-e.events:
			f()
			e.more()
		case <-e.wakes.signal:
			e.woken()
		case <-timer.C:
		case <-stop:
		}
	}
}

// more runs the events that are there already, so that what they free is handed out at once.
func (e *engine) more() {
	for range cap(e.events) {
		select {
		case f := <-e.events:
			f()
		default:
			return
		}
	}
}

// post has f run by loop, unless that has ended.
func (e *engine) post(f func()) {
	select {
	case e.events <- f:
	case <-e.done:
	}
}

// async runs a statement on a goroutine of its own and then loop's part of it.
func (e *engine) async(do func(ctx context.Context) func()) {
	e.wg.Go(func() {
		ctx, cancel := context.WithTimeout(e.db, e.statementTime())
		defer cancel()
		e.post(do(ctx))
	})
}

// statementTime is how long a statement may take. Without a bound, one whose connection broke unseen would last until TCP
// gives up, which takes a quarter of an hour, and there is but one of most kinds.
func (e *engine) statementTime() time.Duration { return max(e.lease, statementLeast) }

// pump starts whatever can be started. What the time brings comes first, so that it is fetched in the same round: the
// next one may come seconds later.
func (e *engine) pump(now time.Time) {
	if !e.stopping {
		e.dueItems(now)
		e.sweep(now)
	}
	e.begin(now)
	e.fetch(now)
	e.settle()
	e.giveBack()
	e.renewWhenDue(now)
	if !e.stopping {
		e.scan(now)
	}
}

// begin starts handlers while there are items and room. No handler starts on a lease that may have ended: after the
// process was stopped for a while the next renewal tells.
func (e *engine) begin(now time.Time) {
	started := 0
	for {
		n := trusted(e.queue[started:min(len(e.queue), started+max(e.batch, 1), started+e.concurrency-e.active)], now)
		if n == 0 {
			break
		}
		group := e.queue[started : started+n]
		started += n
		e.active += n
		e.counts.running.Add(int64(n))
		if e.batch > 1 {
			go e.runBatch(append([]task(nil), group...))
		} else {
			go e.run(group[0])
		}
	}
	if started > 0 {
		clear(e.queue[:started])
		e.queue = e.queue[started:]
	}
}

// trusted is how many tasks there are before the first whose lease may have ended.
func trusted(tasks []task, now time.Time) int {
	for n, t := range tasks {
		if now.After(t.h.trusted) {
			return n
		}
	}
	return len(tasks)
}

// run is a handler's goroutine. The channel has room for all that may have begun.
func (e *engine) run(t task) {
	it := t.it
	it.Attempt++
	begun := time.Now()
	resp, err := Response{}, errExited
	defer func() {
		e.counts.attempted(time.Since(begun), err)
		e.results <- e.ended(t.h, it, resp, err)
	}()
	resp, err = processOne(t.h.ctx, e.proc, it)
}

func (e *engine) runBatch(tasks []task) {
	items := make([]Item, len(tasks))
	for i, t := range tasks {
		items[i] = t.it
		items[i].Attempt++
	}
	begun := time.Now()
	resps, errs := allFailed(len(items), errExited)
	defer func() {
		took := time.Since(begun)
		for i, t := range tasks {
			e.counts.attempted(took, errs[i])
			e.results <- e.ended(t.h, items[i], resps[i], errs[i])
		}
	}()
	resps, errs = processBatch(e.handlers, e.proc.(BatchProcessor), items)
}

func (e *engine) ended(h *hold, it Item, resp Response, err error) attempt {
	if err != nil && h.ctx.Err() != nil {
		// The handler was called off. That is no attempt that failed.
		return attempt{h: h, item: it, abandoned: true}
	}
	if err != nil {
		e.log.Warn("feed: attempt failed", "partition", it.Partition, "item", it.ID, "gate", it.Gate, "attempt", it.Attempt, "error", firstLine(err))
	}
	return attempt{h: h, item: it, result: e.outcomeOf(h.Lease, it, resp, err)}
}

// stop begins the end: nothing is begun any more, and each lease goes back after its last result.
func (e *engine) stop() {
	now := time.Now()
	e.stopping, e.lastErr = true, nil // what failed before is over
	e.timers.cancel = now.Add(e.drainTimeout)
	e.timers.abandon = e.timers.cancel.Add(graceAfterDrain)
	for _, t := range e.queue {
		delete(t.h.inFlight, t.it.ID)
	}
	e.queue = nil
	for _, h := range e.held {
		h.leave = true
		e.consider(h)
	}
}

// abandon gives the leases back under handlers that do not return. What they return later is written nowhere.
func (e *engine) abandon() {
	leases := make([]sqlstore.Lease, 0, len(e.held))
	for _, h := range e.held {
		leases = append(leases, h.Lease)
	}
	ctx, cancel := context.WithTimeout(e.db, handBack)
	defer cancel()
	if err := e.release(ctx, leases, true); err != nil {
		e.lastErr = errors.Join(e.lastErr, err)
	}
}

// release gives leases back. At the end of Run it tells the others, who would find them by their polls only.
func (e *engine) release(ctx context.Context, leases []sqlstore.Lease, atEnd bool) error {
	err := e.tables.Release(ctx, e.terms, leases)
	if err == nil && atEnd {
		_ = e.tables.Announce(ctx) // a hint
	}
	return err
}

// end waits for all goroutines but handlers.
func (e *engine) end() {
	close(e.done)
	e.stopDB()
	e.cancel(errDrained)
	e.wg.Wait()
	e.counts.leases.Add(-int64(len(e.held)))
	e.counts.running.Add(-int64(e.active))
}
