package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/watch"
)

// onModel runs a watcher on a model of the database, in virtual time, until f returns.
func onModel(t *testing.T, c *client, p Processor, opts []WatcherOption, f func(w *Watcher)) {
	t.Helper()
	w := NewWatcher(nil, p, append(quick(), opts...)...)
	w.tables = c
	run := start(t, w)
	f(w)
	require.NoError(t, run.stop(t))
}

// newClient is one of a model of which no statement takes time or fails.
func newClient() *client {
	return &client{
		model: newModel(time.Now), statement: func(context.Context, string) error { return nil }, answer: func(string) error { return nil },
	}
}

// TestHungStatements: each kind of statement gets no answer the first time, as on a connection of which the other side
// is gone. The watcher tries it again.
func TestHungStatements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		var mu sync.Mutex
		var hung []string
		c.statement = func(ctx context.Context, name string) error {
			name, _, _ = strings.Cut(name, " ")
			mu.Lock()
			first := name != "insert" && !slices.Contains(hung, name)
			if first {
				hung = append(hung, name)
			}
			mu.Unlock()
			if first {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		c.create(Partition{ID: "p"})
		require.NoError(t, c.insert(t.Context(), "p", Item{ID: "a"}, Item{ID: "b", Gate: 1}))
		onModel(t, c, finish, nil, func(w *Watcher) {
			time.Sleep(5 * time.Minute)
			require.EqualValues(t, 2, w.Stats().Completed)
			require.NotZero(t, w.Stats().DatabaseErrors)
			mu.Lock()
			defer mu.Unlock()
			require.Subset(t, hung, []string{"acquire", "fetch", "save", "settle"})
		})
	})
}

// TestRetryWakesWhatIsHeld: an item that is retried is processed at once, also where its partition is held for another
// item that takes long.
func TestRetryWakesWhatIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.create(Partition{ID: "p"})
		require.NoError(t, c.insert(t.Context(), "p", Item{ID: "slow"}, Item{ID: "a"}))
		calls, over := make(chan time.Time, 10), make(chan struct{})
		p := ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			if it.ID == "slow" {
				<-over
				return done()
			}
			calls <- time.Now()
			return Response{}, Permanent(errFailed)
		})
		onModel(t, c, p, []WatcherOption{rarely}, func(*Watcher) {
			defer close(over)
			<-calls
			for range 3 {
				time.Sleep(time.Second)
				require.NoError(t, c.unfail(t.Context(), "p", string(Available)))
				retried := time.Now()
				require.Less(t, (<-calls).Sub(retried), 10*time.Millisecond)
			}
		})
	})
}

var errFailed = errors.New("failed")

// TestDelayedItemIsOnTime: an item whose attempts fail is processed again when its delay is over, also where its
// partition is held for another item that takes long.
func TestDelayedItemIsOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const attempts, delay = 10, 100 * time.Millisecond
		c := newClient()
		c.create(Partition{ID: "p"})
		require.NoError(t, c.insert(t.Context(), "p", Item{ID: "slow"}, Item{ID: "a"}))
		calls, over := make(chan time.Time, attempts), make(chan struct{})
		p := ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			if it.ID == "slow" {
				<-over
				return done()
			}
			calls <- time.Now()
			return Response{Done: it.Attempt == attempts}, RetryAfter(delay, failedBefore(it, attempts))
		})
		onModel(t, c, p, []WatcherOption{rarely, MaxRetries(-1)}, func(*Watcher) {
			defer close(over)
			last := <-calls
			for range attempts - 1 {
				next := <-calls
				require.Less(t, next.Sub(last), delay+10*time.Millisecond)
				last = next
			}
		})
	})
}

// failedBefore is the error of all attempts before the last.
func failedBefore(it Item, last int) error {
	if it.Attempt < last {
		return errFailed
	}
	return nil
}

// TestDrainTimeoutNamesNoOldError: the error of a Run whose handler does not return names no error that the database had
// long before.
func TestDrainTimeoutNamesNoOldError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		var down atomic.Bool
		down.Store(true)
		c.statement = func(_ context.Context, name string) error {
			if name == "acquire" && down.Load() {
				return errors.New("no route to the database")
			}
			return nil
		}
		c.create(Partition{ID: "p"})
		require.NoError(t, c.insert(t.Context(), "p", Item{ID: "a"}))
		begun, over := make(chan struct{}), make(chan struct{})
		defer close(over)
		w := NewWatcher(nil, ProcessorFunc(func(context.Context, Item) (Response, error) {
			close(begun)
			<-over
			return done()
		}), append(quick(), DrainTimeout(time.Second))...)
		w.tables = c
		run := start(t, w)
		synctest.Wait()
		require.NotZero(t, w.Stats().DatabaseErrors)
		down.Store(false)
		<-begun
		err := run.stop(t)
		require.ErrorIs(t, err, ErrDrainTimeout)
		require.NotContains(t, err.Error(), "no route")
	})
}

// alone is a model as a process sees it that no other process wakes, as on SQL Server.
type alone struct{ *client }

func (alone) Subscribe(func(partition string)) (cancel func()) { return func() {} }

// TestStealingWithoutWakeups: what an owner releases for another watcher goes to that one, also if this finds out by polling alone,
// whatever its polls and however long the handlers take.
func TestStealingWithoutWakeups(t *testing.T) {
	t.Parallel()
	const partitions = 8
	for _, poll := range []WatcherOption{Poll(100*time.Millisecond, 5*time.Second), Poll(2*time.Second, time.Hour)} {
		for takes := range 10 {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				for p := range partitions {
					c.create(Partition{ID: fmt.Sprint("p", p)})
					require.NoError(t, c.insert(t.Context(), fmt.Sprint("p", p), Item{ID: "a"}, Item{ID: "b"}))
				}
				endless := ProcessorFunc(func(ctx context.Context, _ Item) (Response, error) {
					return Response{}, watch.Sleep(ctx, time.Duration(1+takes)*time.Second)
				})
				watcher := func() (*Watcher, *running) {
					w := NewWatcher(nil, endless, append(quick(), poll, Steal())...)
					w.tables = alone{c}
					return w, start(t, w)
				}
				first, firstRun := watcher()
				time.Sleep(time.Minute)
				require.Equal(t, partitions, first.Stats().Leases)
				second, secondRun := watcher()
				time.Sleep(5 * time.Minute)
				require.Equal(t, partitions/2, second.Stats().Leases)
				require.EqualValues(t, partitions/2, second.Stats().LeasesTaken)
				require.EqualValues(t, partitions, first.Stats().LeasesTaken, "none comes back")
				require.NoError(t, firstRun.stop(t))
				require.NoError(t, secondRun.stop(t))
			})
		}
	}
}

// TestExpiredLeaseWithoutWork: the lease of a watcher that crashed, of a partition with nothing to do, does not keep the others polling.
func TestExpiredLeaseWithoutWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		var scans atomic.Int64
		c.statement = func(_ context.Context, name string) error {
			if name == "acquire" {
				scans.Add(1)
			}
			return nil
		}
		c.create(Partition{ID: "p"})
		dead := "dead"
		c.partitions["p"].Owner, c.partitions["p"].Until = &dead, &sqlstore.RowTime{Time: time.Now()}
		onModel(t, c, finish, []WatcherOption{Poll(100*time.Millisecond, 5*time.Second)}, func(*Watcher) {
			time.Sleep(time.Minute)
			require.Less(t, scans.Load(), int64(30))
		})
	})
}
