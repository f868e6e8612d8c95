package feed

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/engine"
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
