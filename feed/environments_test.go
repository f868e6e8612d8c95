package feed

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// TestServerBecomesReadOnly: connections lead to a server that takes no writes any more, and new ones to the one that does. No connection of the
// first kind is used again after a write that failed.
func TestServerBecomesReadOnly(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[1].fresh(t))
	create(t, s, Partition{ID: "p"}, make([]Item, 20)...)
	pool, err := s.sql.DB.DB()
	require.NoError(t, err)
	var conns []*sql.Conn
	for range 16 {
		conn, err := pool.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "SET default_transaction_read_only = on")
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	require.ErrorContains(t, s.Insert(t.Context(), "p", Item{}), "25006")
	w := startWatcher(t, s, finish)
	eventually(t, "the watcher goes on", func() bool { return counts(t, s, "p")[0].Complete == 20 })
	eventually(t, "inserts go on", func() bool { return s.Insert(t.Context(), "p", Item{}) == nil })
	require.NoError(t, w.stop(t))
}

// TestColumnsAreAdded: another program adds columns to the tables, and the statements of before still work.
func TestColumnsAreAdded(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "a"})
		calls := func() {
			_, err := s.Item(t.Context(), "p", "a")
			require.NoError(t, err)
			_, err = s.Items(t.Context(), Query{Partition: "p"})
			require.NoError(t, err)
			_, err = s.Partitions(t.Context(), Query{})
			require.NoError(t, err)
			_, err = s.Prune(t.Context(), 0, nil)
			require.NoError(t, err)
			require.NoError(t, s.Advance(t.Context(), "p", 0))
			settleAs(t, s, theTerms, leaseOne(t, s, theTerms), sqlstore.Again)
			require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET owner = NULL, until = NULL").Error)
		}
		calls()
		for _, table := range []string{"items", "partitions"} {
			require.NoError(t, s.sql.DB.Exec("ALTER TABLE "+table+" ADD note int").Error)
		}
		calls()
	})
}

// TestForgottenCommits: a server that does not wait for its disk crashes, and forgets its last commits. Watchers that know more than it does go on, and
// process again what it has forgotten.
func TestForgottenCommits(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=0")
	dsn, err := server.Database(t.Context())
	require.NoError(t, err)
	s := openStore(t, dsn)
	for p := range 10 {
		items := make([]Item, 60)
		for i := range items {
			items[i] = Item{ID: fmt.Sprint(i), Gate: i % 3}
		}
		create(t, s, Partition{ID: fmt.Sprint(p)}, items...)
	}
	require.NoError(t, s.sql.DB.Exec("CHECKPOINT").Error)
	var calls atomic.Int64
	var watchers []*running
	for _, s := range []*Store{s, openStore(t, dsn)} {
		watchers = append(watchers, startWatcher(t, s, ProcessorFunc(func(context.Context, Item) (Response, error) {
			calls.Add(1)
			return done()
		}), Lease(time.Second), Concurrency(4), MaxCrashes(9), Limits(Limit{Gate: 1, Concurrency: 3})))
	}
	for range 3 {
		before := calls.Load()
		eventually(t, "some more items are processed", func() bool { return calls.Load() > before+100 })
		server.Crash()
		require.NoError(t, server.Restart(t.Context()))
	}
	for p := range 10 {
		eventually(t, "all items are complete", func() bool {
			c, err := s.Counts(t.Context(), fmt.Sprint(p))
			return err == nil && c[0].Complete+c[1].Complete+c[2].Complete == 60
		})
	}
	for _, w := range watchers {
		require.NoError(t, w.stop(t))
	}
}

// TestDefaultIsolation: whatever level a database gives transactions by default, an item that was inserted while a gate was about to pass is seen.
func TestDefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		s := openStore(t, backends[1].fresh(t)+"&default_transaction_isolation="+url.PathEscape(level))
		create(t, s, Partition{ID: "p"}, Item{Gate: 1})
		l := leaseOne(t, s, theTerms)
		tx := s.sql.DB.Begin()
		require.NoError(t, s.InsertTx(t.Context(), tx, "p", Item{ID: "late"}))
		outcome := make(chan sqlstore.Outcome)
		go func() {
			for got, _, err := s.sql.Settle(t.Context(), theTerms, l); ; got, _, err = s.sql.Settle(t.Context(), theTerms, l) {
				if !sqlstore.Locked(err) {
					outcome <- got
					return
				}
			}
		}()
		eventually(t, "the gate waits for the insert", func() bool {
			var waits bool
			const locked = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
			err := s.sql.DB.Raw(locked).Row().Scan(&waits)
			return err == nil && waits
		})
		require.NoError(t, tx.Commit().Error)
		require.Equal(t, sqlstore.Again, <-outcome, level)
	}
}

// TestInsertOverASlowLink: items are inserted whose data takes longer to send than the server lets a transaction wait for a statement.
func TestInsertOverASlowLink(t *testing.T) {
	t.Parallel()
	proxy, dsn := newCutter(t, backends[1].fresh(t), 1)
	proxy.off.Store(true)
	s := openStore(t, dsn+"&idle_in_transaction_session_timeout=8s")
	proxy.rate.Store(2 << 20)
	items := make([]Item, 320)
	for i := range items {
		items[i].Data = make([]byte, 64<<10)
	}
	create(t, s, Partition{ID: "p"}, items...)
	require.Equal(t, len(items), counts(t, s, "p")[0].Available)
}

// TestLargeBatches: 150 MB are inserted by one call, read and written again. PostgreSQL ends a transaction that waits for longer than the feed's own
// timeout, so none of the statements has all of it.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	most := 150_000_000
	if testing.Short() {
		most = 15_000_000
	}
	onEach(t, func(t *testing.T, s *Store, dsn string) {
		sent := func(string, int64) {}
		if strings.HasPrefix(dsn, "postgres") {
			proxy, through := newCutter(t, dsn, 1)
			proxy.off.Store(true)
			s = openStore(t, through)
			sent = func(by string, most int64) {
				require.LessOrEqual(t, proxy.largest.Swap(0), most, "bytes that %s sent without an answer", by)
			}
		}
		for _, each := range []int{0, most / 200} {
			partition := fmt.Sprint(each)
			items := make([]Item, 200)
			for i := range items {
				items[i].Data = bytes.Repeat([]byte{7}, each)
			}
			create(t, s, Partition{ID: partition})
			require.NoError(t, s.Insert(t.Context(), partition, items...))
			sent("an insert", 3<<20)
			w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
				return Response{Done: true, Data: append([]byte{8}, it.Data...)}, nil
			}))
			eventually(t, "all is complete", func() bool { return counts(t, s, partition)[0].Complete == len(items) })
			require.NoError(t, w.stop(t))
			sent("a watcher", engine.SaveBytes+3<<20)
			stored, err := s.Items(t.Context(), Query{Partition: partition})
			require.NoError(t, err)
			for _, it := range stored {
				require.Len(t, it.Data, each+1)
				require.Equal(t, 1, it.Attempt)
			}
		}
	})
}

// TestSQLiteFileIsReplaced: what is written to a file that has no name any more would be lost, so nothing is.
func TestSQLiteFileIsReplaced(t *testing.T) {
	t.Parallel()
	dsn := backends[0].fresh(t)
	s := openStore(t, dsn)
	create(t, s, Partition{ID: "p"})
	log := complain()
	w := startWatcher(t, s, finish, log.option())
	path, _, _ := strings.Cut(strings.TrimPrefix(dsn, "sqlite:"), "?")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.Rename(path+suffix, path+".old"+suffix))
	}
	require.ErrorContains(t, s.Insert(t.Context(), "p", Item{}), "replaced or removed")
	other := openStore(t, dsn)
	create(t, other, Partition{ID: "p"}, Item{})
	require.ErrorContains(t, s.Insert(t.Context(), "p", Item{}), "replaced or removed")
	log.more(t, 2)
	require.NoError(t, w.stop(t))
	require.Equal(t, 1, counts(t, other, "p")[0].Available)
}
