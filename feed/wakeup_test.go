package feed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// TestForgedWakeup: any client of the account can send wake-ups. They cost a look into the database, whatever they say.
func TestForgedWakeup(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	nc, attacker := srv.Connect(t), srv.Connect(t)
	s := openStore(t, backends[0].fresh(t), PublishWakeups(nc))
	create(t, s, Partition{ID: "first"}, Item{ID: "a"})
	got, w := processed(t, s, rarely, Wakeups(nc))
	awaitItem(t, got, "first/a")
	for i := range 20_000 {
		require.NoError(t, attacker.Publish(WakeupSubject, fmt.Appendf(nil, "forged-%d", i)))
	}
	require.NoError(t, attacker.Publish(WakeupSubject, make([]byte, 900_000)))
	require.NoError(t, attacker.Publish(WakeupSubject, nil))
	require.NoError(t, attacker.Publish(WakeupSubject, []byte("first")))
	require.NoError(t, attacker.Flush())
	create(t, s, Partition{ID: "p"}, Item{ID: "a"})
	awaitItem(t, got, "p/a")
	require.NoError(t, w.stop(t))
	require.Empty(t, got, "an item is handled twice")
}

// TestInsertTxDoesNotNotify: the caller's transaction has no NOTIFY, with which PostgreSQL would commit one at a time. The Store notifies by
// a statement of its own, also after a commit that comes later, and what it has not yet notified of when it is closed.
func TestInsertTxDoesNotNotify(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	s, err := Open(t.Context(), dsn)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), "LISTEN jetpull_feed")
	require.NoError(t, err)
	notified := func(id string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testWait)
		defer cancel()
		for {
			n, err := conn.WaitForNotification(ctx)
			require.NoError(t, err, id)
			require.NotEqual(t, conn.PgConn().PID(), n.PID, "by the caller's transaction")
			if n.Payload == id {
				return
			}
		}
	}
	create(t, s, Partition{ID: "p"})
	notified("p")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = s.CreatePartitionTx(t.Context(), tx, Partition{ID: "new"})
	require.NoError(t, err)
	require.NoError(t, s.InsertTx(t.Context(), tx, "p", Item{}))
	_, err = tx.Exec(t.Context(), "SELECT pg_sleep(0.1)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	notified("new")
	create(t, s, Partition{ID: "last"})
	require.NoError(t, s.Close())
	notified("last")
}
