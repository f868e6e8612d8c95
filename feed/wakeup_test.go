package feed

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// rarely polls so seldom that only a wake-up can bring what a test waits for.
var rarely = Poll(time.Hour, time.Hour)

// processed runs a watcher that reports each item that it gets.
func processed(t *testing.T, s *Store, opts ...WatcherOption) (<-chan string, *running) {
	t.Helper()
	got := make(chan string, 100)
	w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		got <- it.Partition + "/" + it.ID
		return done()
	}), opts...)
	return got, w
}

func awaitItem(t *testing.T, got <-chan string, want string) {
	t.Helper()
	select {
	case item := <-got:
		require.Equal(t, want, item)
	case <-time.After(testWait):
		t.Fatalf("no wake-up for %s", want)
	}
}

// TestWakeupsInProcess: each change that makes work wakes a watcher on the same Store.
func TestWakeupsInProcess(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "first"}, Item{ID: "a"})
		got, w := processed(t, s, rarely)
		awaitItem(t, got, "first/a") // it has begun
		create(t, s, Partition{ID: "p"}, Item{ID: "a"})
		awaitItem(t, got, "p/a")
		require.NoError(t, s.Insert(t.Context(), "p", Item{ID: "b"}))
		awaitItem(t, got, "p/b")
		require.NoError(t, s.Insert(t.Context(), "p", Item{ID: "later", NotBefore: time.Now().Add(30 * time.Millisecond)}))
		require.NoError(t, w.stop(t))
	})
}

// TestWakeupsByPostgres: another process's change wakes a watcher by NOTIFY.
func TestWakeupsByPostgres(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	s, other := openStore(t, dsn), openStore(t, dsn)
	create(t, s, Partition{ID: "first"}, Item{ID: "a"})
	got, w := processed(t, s, rarely)
	awaitItem(t, got, "first/a")
	create(t, other, Partition{ID: "p"}, Item{ID: "a"})
	awaitItem(t, got, "p/a")
	require.NoError(t, other.Insert(t.Context(), "p", Item{ID: "b"}))
	awaitItem(t, got, "p/b")
	require.NoError(t, w.stop(t))
}

// TestWakeupsByNATS: the same by NATS; and with the server down, and back, the poll and then the wake-ups go on.
func TestWakeupsByNATS(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	nc := srv.Connect(t)
	dsn := backends[0].fresh(t)
	s, other := openStore(t, dsn), openStore(t, dsn, PublishWakeups(srv.Connect(t)))
	create(t, s, Partition{ID: "first"}, Item{ID: "a"})
	got, w := processed(t, s, rarely, Wakeups(nc))
	awaitItem(t, got, "first/a")
	require.NoError(t, nc.Flush())
	create(t, other, Partition{ID: "p"}, Item{ID: "a"})
	awaitItem(t, got, "p/a")
	require.NoError(t, w.stop(t))

	srv.Stop()
	got, w = processed(t, s, Wakeups(nc))
	require.NoError(t, other.Insert(t.Context(), "p", Item{ID: "b"}))
	awaitItem(t, got, "p/b")
	require.NoError(t, w.stop(t))
}

// TestStopWakesOthers: what a watcher gives back when it stops, another has without waiting for its poll.
func TestStopWakesOthers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, dsn string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "b"})
		begun, finish := make(chan struct{}), make(chan struct{})
		first := startWatcher(t, s, ProcessorFunc(func(context.Context, Item) (Response, error) {
			begun <- struct{}{}
			<-finish
			return done()
		}), Concurrency(1), MaxPartitions(1))
		<-begun
		other := s
		if s.sql.Dialect.Name == "postgres" {
			other = openStore(t, dsn)
		}
		create(t, s, Partition{ID: "own"}, Item{ID: "a"})
		got, second := processed(t, other, rarely)
		awaitItem(t, got, "own/a") // it has begun
		first.cancel()
		close(finish)
		require.NoError(t, first.stop(t))
		awaitItem(t, got, "p/b")
		require.NoError(t, second.stop(t))
	})
}
