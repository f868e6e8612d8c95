package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// oneTable is tables with one partition "p" at gate 0, of which a fetch returns each item until it is saved.
type oneTable struct {
	mu       sync.Mutex
	items    []sqlstore.Item
	leased   bool
	released int
	settled  sqlstore.Outcome // what Settle returns when all is saved
	save     []error          // what the next calls of Save return
	wake     func(partition string)
}

func (o *oneTable) Acquire(context.Context, sqlstore.Terms, int, []string) ([]sqlstore.Taken, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leased || len(o.items) == 0 {
		return nil, nil
	}
	o.leased = true
	return []sqlstore.Taken{{Lease: sqlstore.Lease{ID: "p", Epoch: 1}}}, nil
}

func (o *oneTable) Waiting(context.Context, sqlstore.Terms, int) (int, error)      { return 0, nil }
func (o *oneTable) Soonest(context.Context, sqlstore.Terms) (time.Duration, error) { return -1, nil }

func (o *oneTable) Report(context.Context, sqlstore.Terms, sqlstore.Report) ([]sqlstore.Cancel, error) {
	return nil, nil
}

func (o *oneTable) Claim(context.Context, sqlstore.Terms) (bool, error) { return false, nil }
func (o *oneTable) Listen(context.Context, func(string)) error          { return nil }
func (o *oneTable) Subscribe(f func(partition string)) func()           { o.wake = f; return func() {} }

func (o *oneTable) Grant(context.Context, sqlstore.Terms, []sqlstore.Ask) ([]sqlstore.Grant, error) {
	return nil, nil
}

func (o *oneTable) Release(context.Context, sqlstore.Terms, []sqlstore.Taken) error {
	o.released++
	return nil
}

func (o *oneTable) Renew(_ context.Context, _ sqlstore.Terms, leases []sqlstore.Lease) (map[sqlstore.Lease]sqlstore.Hold, error) {
	held := map[sqlstore.Lease]sqlstore.Hold{}
	for _, l := range leases {
		held[l] = sqlstore.Renewed
	}
	return held, nil
}

func (o *oneTable) Fetch(_ context.Context, _ sqlstore.Terms, wants []sqlstore.Want) (list []sqlstore.Item, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, it := range o.items {
		if it.Seq > wants[0].After && len(list) < wants[0].Limit {
			list = append(list, it)
		}
	}
	return list, nil
}

func (o *oneTable) Save(_ context.Context, _ sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.save) > 0 {
		err := o.save[0]
		if o.save = o.save[1:]; err != nil {
			return nil, err
		}
	}
	saved := make([]bool, len(results))
	for i, r := range results {
		left := o.items[:0:0]
		for _, it := range o.items {
			if it.ID == r.Item && it.Version == r.Version && r.Lease == (sqlstore.Lease{ID: "p", Epoch: 1}) {
				saved[i] = true
			} else {
				left = append(left, it)
			}
		}
		o.items = left
	}
	return saved, nil
}

func (o *oneTable) Settle(context.Context, sqlstore.Terms, sqlstore.Lease) (sqlstore.Outcome, int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.items) > 0 {
		return sqlstore.Again, 0, nil
	}
	o.leased = false
	return o.settled, 0, nil
}

// calls is a Handler that reports its calls, and completes each item.
type calls struct {
	begun     chan string
	err       error
	failed    chan error
	conflicts chan string
}

func newCalls() *calls {
	return &calls{begun: make(chan string, 100), failed: make(chan error, 100), conflicts: make(chan string, 100)}
}

func (c *calls) Process(_ context.Context, it *sqlstore.Item) (sqlstore.Result, error) {
	c.begun <- it.ID
	return sqlstore.Result{Item: it.ID, Version: it.Version, Status: sqlstore.Complete}, c.err
}

func (c *calls) Failed(it *sqlstore.Item, err error) sqlstore.Result {
	c.failed <- err
	return sqlstore.Result{Item: it.ID, Version: it.Version, Status: sqlstore.Failed}
}

func (c *calls) Conflict(it *sqlstore.Item) { c.conflicts <- it.ID }

func testConfig() Config {
	return Config{
		Concurrency: 4, PartitionConcurrency: 4, MaxPartitions: 10, Lease: time.Second, PollMin: 10 * time.Millisecond, PollMax: time.Second,
		DrainTimeout: time.Second, Log: slog.New(slog.DiscardHandler), Jitter: func(d time.Duration) time.Duration { return d },
	}
}

// run starts an engine; stop ends it and returns what Run returned.
func run(t *testing.T, o *oneTable, c *calls, tally *Tally) (stop func() (drained bool)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool, 1)
	e := New(ctx, testConfig(), o, c, tally)
	go func() { ended <- e.Run(ctx) }()
	return func() bool {
		cancel()
		return <-ended
	}
}

// TestItemsAreProcessed: each item is handed to the handler once, and saved under its lease.
func TestItemsAreProcessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, c, tally := &oneTable{settled: sqlstore.Idle}, newCalls(), &Tally{}
		for i := range 50 {
			o.items = append(o.items, sqlstore.Item{PartitionID: "p", ID: string(rune('A' + i)), Seq: int64(i + 1), Version: 1})
		}
		stop := run(t, o, c, tally)
		time.Sleep(time.Minute)
		require.EqualValues(t, 50, tally.Completed.Load())
		require.Len(t, c.begun, 50)
		require.Zero(t, tally.Leases.Load())
		o.mu.Lock()
		o.items = append(o.items, sqlstore.Item{PartitionID: "p", ID: "late", Seq: 100, Version: 1})
		o.mu.Unlock()
		begun := time.Now()
		o.wake("p")
		synctest.Wait()
		require.EqualValues(t, 51, tally.Completed.Load(), "a wake-up brings it")
		require.Less(t, time.Since(begun), 10*time.Millisecond)
		require.True(t, stop())
	})
}

// TestRefusedResults: a result that the database refuses is a failed attempt, whose result is saved.
func TestRefusedResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := sqlstore.Invalid("Data", "is too large")
		o := &oneTable{
			settled: sqlstore.Blocked, save: []error{refused, nil, refused},
			items: []sqlstore.Item{{PartitionID: "p", ID: "a", Seq: 1, Version: 1}},
		}
		c, tally := newCalls(), &Tally{}
		stop := run(t, o, c, tally)
		time.Sleep(time.Minute)
		require.ErrorIs(t, <-c.failed, refused)
		require.EqualValues(t, 1, tally.Failed.Load())
		require.EqualValues(t, 2, tally.DatabaseErrors.Load())
		require.True(t, stop())
	})
}

// TestAnOutageThatEndsRefusesNothing: an outage ends between a save that fails and the statement that finds out whether there is one.
func TestAnOutageThatEndsRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outage := sqlstore.Invalid("items", "has no column history")
		o := &oneTable{
			settled: sqlstore.Idle, save: []error{outage, outage, outage, nil},
			items: []sqlstore.Item{{PartitionID: "p", ID: "a", Seq: 1, Version: 1}},
		}
		c, tally := newCalls(), &Tally{}
		stop := run(t, o, c, tally)
		time.Sleep(time.Minute)
		require.Empty(t, c.failed)
		require.EqualValues(t, 1, tally.Completed.Load())
		require.True(t, stop())
	})
}

// TestFailedAttempts: the error of a handler goes to Failed, and what that returns is saved.
func TestFailedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oneTable{settled: sqlstore.Blocked, items: []sqlstore.Item{{PartitionID: "p", ID: "a", Seq: 1, Version: 1}}}
		c, tally := newCalls(), &Tally{}
		c.err = errors.New("no good")
		stop := run(t, o, c, tally)
		time.Sleep(time.Minute)
		require.Equal(t, c.err, <-c.failed)
		require.EqualValues(t, 1, tally.Failed.Load())
		require.EqualValues(t, 1, tally.GatesBlocked.Load())
		require.True(t, stop())
	})
}

// TestItemsNeedTheirLeases: no item of a lease that may have ended begins, behind those of leases that have not.
func TestItemsNeedTheirLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		e := New(t.Context(), testConfig(), &oneTable{}, c, &Tally{})
		defer e.stopDB()
		now := time.Now()
		for _, trusted := range []time.Time{now, now, now.Add(-1), now} {
			e.lanes[0].queue = append(e.lanes[0].queue, &attempt{h: &hold{trusted: trusted, ctx: t.Context()}})
		}
		e.begin(now)
		synctest.Wait()
		require.Len(t, c.begun, 2)
		require.Len(t, e.lanes[0].queue, 2, "they wait for the renewal")
	})
}

// TestMissedWakeups: when more wake-ups come than the engine keeps, it looks at all partitions.
func TestMissedWakeups(t *testing.T) {
	e := New(t.Context(), testConfig(), &oneTable{}, newCalls(), &Tally{})
	defer e.stopDB()
	h := &hold{Taken: sqlstore.Taken{Lease: sqlstore.Lease{ID: "p"}}, ended: true, lane: e.lanes[0], inFlight: map[string]struct{}{"a": {}}}
	e.held["p"] = h
	for range wakesMost {
		e.Wake("other")
	}
	e.Wake("p")
	e.woken(<-e.wakes)
	e.due(time.Now())
	require.False(t, h.ended, "another pass has begun")
	require.Len(t, e.lanes[0].toFetch, 1)
}

// A lane that waits for begins loses its items, for example because their partition is stolen. It asks once more, for none, so that
// nothing is kept free for it.
func TestALaneWithoutItemsWaitsForNothing(t *testing.T) {
	now := time.Now()
	l := newLanes([]sqlstore.Limit{{Rate: 1, Per: time.Second}})[1]
	ask := func() sqlstore.Ask {
		a := l.ask(10)
		l.granted(&a, sqlstore.Grant{}, now, now, time.Minute)
		return a
	}
	l.queue = []*attempt{{}}
	require.Equal(t, 1, ask().Begins)
	l.queue = nil
	require.True(t, l.needs())
	require.Zero(t, ask().Begins)
	require.False(t, l.needs())
}
