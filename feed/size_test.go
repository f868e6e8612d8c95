package feed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOneLargePartition: one partition has 3,000,000 items, beside 10,000 partitions with one each. Lists, counts and operations answer for both,
// the small partitions are completed while the large one has work, and all is pruned.
func TestOneLargePartition(t *testing.T) {
	t.Parallel()
	large, small := 3_000_000, 10_000
	if testing.Short() {
		large, small = 12_000, 150
	}
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			dsn := b.fresh(t)
			s := openStore(t, dsn)
			const columns = "INSERT INTO items (partition_id, id, gate, status, data, version) SELECT "
			for _, statement := range []string{
				"INSERT INTO partitions (id, gate, status, sealed, version) VALUES ('large', 0, 'Available', TRUE, 1)",
				"INSERT INTO partitions (id, gate, status, sealed, version) SELECT 's' || n, 0, 'Available', TRUE, 1 FROM " + numbers(b.name, small),
				columns + "'large', 'i' || n, 0, CASE n % 3 WHEN 0 THEN 'Failed' WHEN 1 THEN 'Complete' ELSE 'Available' END, NULL, 1 FROM " +
					numbers(b.name, large),
				columns + "'s' || n, 'only', 0, 'Available', NULL, 1 FROM " + numbers(b.name, small),
				"ANALYZE",
			} {
				require.NoError(t, s.sql.DB.Exec(statement).Error)
			}
			operateOnLarge(t, s, large, small)

			w := startWatcher(t, openStore(t, dsn), finish, AutoClose(), Concurrency(256))
			require.Eventually(t, func() bool { return len(pages(t, s, Query{Status: Complete})) >= small }, 10*time.Minute, 100*time.Millisecond,
				"the small ones are complete beside the large one")
			require.NoError(t, w.stop(t))

			require.NoError(t, s.sql.DB.Exec("UPDATE items SET status = 'Complete', version = version + 1 WHERE status <> 'Complete'").Error)
			require.NoError(t, s.ClosePartition(t.Context(), "large"))
			pruned, err := s.Prune(t.Context(), 0, nil)
			require.NoError(t, err)
			require.Equal(t, Pruned{small + 1, small + large}, pruned)
		})
	}
}

// operateOnLarge lists, counts and retries. A third of the large partition's items are Available, Complete and Failed each.
func operateOnLarge(t *testing.T, s *Store, large, small int) {
	t.Helper()
	ctx := t.Context()
	require.Len(t, pages(t, s, Query{}), small+1)
	for _, status := range []Status{"", Failed, Available} {
		page, err := s.Items(ctx, Query{Partition: "large", Status: status, Limit: 100})
		require.NoError(t, err)
		require.Len(t, page, 100)
		next, err := s.Items(ctx, Query{Partition: "large", Status: status, Limit: 100, After: page[99].ID})
		require.NoError(t, err)
		require.Len(t, next, 100)
		require.Greater(t, next[0].seq, page[99].seq)
	}
	few, err := s.Items(ctx, Query{Partition: "s7"})
	require.NoError(t, err)
	require.Len(t, few, 1)
	require.Equal(t, Counts{Available: large / 3, Complete: large / 3, Failed: large / 3}, counts(t, s, "large")[0])
	require.Equal(t, Counts{Available: 1}, counts(t, s, "s7")[0])
	backlog, err := s.Backlog(ctx)
	require.NoError(t, err)
	require.Equal(t, large/3, backlog.Failed)
	require.Equal(t, large/3+small, backlog.Ready)
	n, err := s.RetryFailed(ctx, "large")
	require.NoError(t, err)
	require.Equal(t, large/3, n)
	n, err = s.SkipFailed(ctx, "large")
	require.NoError(t, err)
	require.Zero(t, n)
	require.ErrorIs(t, s.Insert(ctx, "large", Item{ID: "new"}), ErrClosed)
}

// pages are the IDs of all partitions of a query, page by page.
func pages(t *testing.T, s *Store, q Query) (ids []string) {
	t.Helper()
	for {
		page, err := s.Partitions(t.Context(), q)
		require.NoError(t, err)
		for _, p := range page {
			ids = append(ids, p.ID)
		}
		if len(page) < defaultLimit {
			return ids
		}
		q.After = ids[len(ids)-1]
	}
}
