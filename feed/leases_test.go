package feed

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// TestLeases: of many that race one has the lease, and whoever lost it writes nothing.
func TestLeases(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "b"})
		var winners atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				rows, err := s.sql.Acquire(t.Context(), termsOf(fmt.Sprint("w", i)), 10, nil)
				if err != nil {
					t.Error(err)
				}
				winners.Add(int64(len(rows)))
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, winners.Load())
		p, err := s.Partition(t.Context(), "p")
		require.NoError(t, err)
		require.EqualValues(t, 1, p.Epoch)
		require.WithinDuration(t, time.Now().Add(time.Minute), p.Until, 20*time.Second)

		first, old := termsOf(p.Owner), leaseOf("p", 1)
		zombies := fetchAll(t, s, first, old)
		require.Equal(t, []string{"a", "b"}, ids(zombies))
		require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET until = ?", time.Now().Add(-time.Hour)).Error)
		second := termsOf("second")
		l := leaseOne(t, s, second)
		require.EqualValues(t, 2, l.Epoch)
		before := dump(t, s)
		require.False(t, end(t, s, first, old, zombies[0], Complete), "a write of the lost lease")
		require.False(t, end(t, s, second, old, zombies[0], Complete), "a write with the lost epoch")
		require.Empty(t, fetchAll(t, s, first, old))
		settleAs(t, s, first, old, sqlstore.Lost)
		require.NoError(t, s.sql.Release(t.Context(), first, []sqlstore.Lease{old}))
		held, err := s.sql.Renew(t.Context(), first, []sqlstore.Lease{old})
		require.NoError(t, err)
		require.Empty(t, held)
		require.Equal(t, before, dump(t, s), "whoever lost the lease changes nothing")
		held, err = s.sql.Renew(t.Context(), second, []sqlstore.Lease{l})
		require.NoError(t, err)
		require.Contains(t, held, l)
		mixed := make([]sqlstore.Result, 2)
		for i, under := range []sqlstore.Lease{l, leaseOf("p", 1)} {
			mixed[i] = sqlstore.Result{Lease: under, Item: zombies[i].ID, Version: zombies[i].Version, Status: sqlstore.Complete, Attempt: 1, Steps: 1}
		}
		saved, err := s.sql.Save(t.Context(), second, mixed)
		require.NoError(t, err)
		require.Equal(t, []bool{true, false}, saved, "a result of the lost epoch beside one of the present")
		mixed[0].Item, mixed[0].Version = zombies[1].ID, zombies[1].Version
		saved, err = s.sql.Save(t.Context(), second, mixed)
		require.NoError(t, err)
		require.Equal(t, []bool{true, false}, saved, "two results of the same item")
		renewed := dump(t, s)
		require.NoError(t, s.sql.Release(t.Context(), second, []sqlstore.Lease{leaseOf("p", 1)}))
		require.Equal(t, renewed, dump(t, s), "a release of an old lease gives no new one back")
		require.NoError(t, s.sql.Release(t.Context(), second, []sqlstore.Lease{l}))
		p, err = s.Partition(t.Context(), "p")
		require.NoError(t, err)
		require.Empty(t, p.Owner)
	})
}

// TestLocksInOrder: what changes several leases locks their rows in the order of the IDs, as a save does, also where they
// lie in the table in another one. Else the two would wait for each other until PostgreSQL ends one.
func TestLocksInOrder(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[1].fresh(t))
	create(t, s, Partition{ID: "b"}, Item{})
	create(t, s, Partition{ID: "a"}, Item{})
	me := termsOf("me")
	leases, err := s.sql.Acquire(t.Context(), me, 2, nil)
	require.NoError(t, err)
	require.Len(t, leases, 2)
	for i, change := range []func() error{
		func() error {
			_, err := s.sql.Renew(t.Context(), me, leases)
			return err
		},
		func() error { return s.sql.Release(t.Context(), me, leases) },
	} {
		changed := make(chan error, 1)
		require.NoError(t, s.sql.DB.Transaction(func(tx *gorm.DB) error {
			require.NoError(t, tx.Exec("SELECT 1 FROM partitions WHERE id = 'a' FOR UPDATE").Error)
			go func() { changed <- change() }()
			eventually(t, "it waits for a", func() bool {
				var waiting int
				err := s.sql.DB.Raw("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Row().Scan(&waiting)
				return err == nil && waiting == 1
			})
			return tx.Exec("SELECT 1 FROM partitions WHERE id = 'b' FOR UPDATE NOWAIT").Error
		}), "change %d has b", i)
		require.NoError(t, <-changed)
	}
}

func TestLeasesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		for _, sql := range []string{
			"INSERT INTO partitions (id, gate, status, version) VALUES ('p', 0, 'Available', 1)",
			"INSERT INTO items (partition_id, id, gate, status, data, version) VALUES ('p', 'a', 0, 'Available', NULL, 1)",
			"UPDATE partitions SET owner = ''",
		} {
			require.NoError(t, s.sql.DB.Exec(sql).Error)
		}
		l := leaseOne(t, s, theTerms)
		it := fetchAll(t, s, theTerms, l)[0]
		require.Empty(t, it.Data)
		require.NoError(t, s.sql.DB.Exec("UPDATE items SET status = 'Complete', version = version + 1 WHERE id = 'a' AND version = 1").Error)
		require.False(t, end(t, s, theTerms, l, it, Failed), "a write by version stands")
		got, err := s.Item(t.Context(), "p", "a")
		require.NoError(t, err)
		require.Equal(t, Complete, got.Status)
		require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET owner = 'x', version = version + 1").Error)
		settleAs(t, s, theTerms, l, sqlstore.Lost)
	})
}
