package feed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		require.NoError(t, s.sql.Release(t.Context(), first, takenOf(old)))
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
		require.NoError(t, s.sql.Release(t.Context(), second, takenOf(leaseOf("p", 1))))
		require.Equal(t, renewed, dump(t, s), "a release of an old lease gives no new one back")
		require.NoError(t, s.sql.Release(t.Context(), second, takenOf(l)))
		p, err = s.Partition(t.Context(), "p")
		require.NoError(t, err)
		require.Empty(t, p.Owner)
	})
}

// TestLockedLeases: what changes several leases leaves a row alone that another transaction has locked, and reports it as neither renewed nor
// lost. So it waits for no row while it has another one locked.
func TestLockedLeases(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[1].fresh(t))
	for _, id := range []string{"a", "b", "c"} {
		create(t, s, Partition{ID: id}, Item{})
	}
	me := termsOf("me")
	taken, err := s.sql.Acquire(t.Context(), me, 3, nil)
	require.NoError(t, err)
	leases := leasesOf(taken)
	require.Len(t, leases, 3)
	renew := func() map[sqlstore.Lease]sqlstore.Hold {
		held, err := s.sql.Renew(t.Context(), me, append(leases, leaseOf("d", 1)))
		require.NoError(t, err)
		return held
	}
	unlock := lockPartition(t, s, "b")
	want := map[sqlstore.Lease]sqlstore.Hold{leaseOf("a", 1): sqlstore.Renewed, leaseOf("b", 1): sqlstore.Unlocked, leaseOf("c", 1): sqlstore.Renewed}
	require.Equal(t, want, renew())
	results := sqlstore.Map(leases, func(l *sqlstore.Lease) sqlstore.Result { return sqlstore.Result{Lease: *l, Item: "none"} })
	_, err = s.sql.Save(t.Context(), me, results)
	require.NoError(t, err)
	for _, r := range results {
		require.Equal(t, r.ID == "b", r.Locked, r.ID)
	}
	me.Patient = true
	_, err = s.sql.Save(t.Context(), me, results)
	require.True(t, sqlstore.Locked(err), "%v", err)
	_, _, err = s.sql.Settle(t.Context(), me, leaseOf("b", 1))
	require.True(t, sqlstore.Locked(err), "%v", err)
	unlock()
	want[leaseOf("b", 1)] = sqlstore.Renewed
	require.Equal(t, want, renew())
	unlock = lockPartition(t, s, "b")
	require.NoError(t, s.sql.Release(t.Context(), me, takenOf(leases...)))
	unlock()
	require.Equal(t, map[sqlstore.Lease]sqlstore.Hold{leaseOf("b", 1): sqlstore.Renewed}, renew(), "the others are released")
}

// lockPartition has another transaction lock the row of a partition, until unlock is called.
func lockPartition(t *testing.T, s *Store, id string) (unlock func()) {
	t.Helper()
	tx := s.sql.DB.Begin()
	require.NoError(t, tx.Error)
	require.NoError(t, tx.Exec("SET LOCAL idle_in_transaction_session_timeout = 0").Error)
	require.NoError(t, tx.Exec("SELECT 1 FROM partitions WHERE id = ? FOR UPDATE", id).Error)
	return func() { require.NoError(t, tx.Rollback().Error) }
}

// TestInsertLeftOpen: a transaction with InsertTx stays open for longer than a lease. The items of other partitions are processed, although the
// result that waits and handlers have all of Concurrency when the lease ends. Those of its partition are processed when it ends, none of them twice.
func TestInsertLeftOpen(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	s := openStore(t, dsn)
	const partitions, each, concurrency = 10, 30, 4
	h := newHistory(t, s, concurrency)
	for p := range partitions {
		create(t, s, Partition{ID: fmt.Sprint("p", p)}, make([]Item, each)...)
	}
	begun, result, release := make(chan string, 2*partitions*each), make(chan struct{}), make(chan struct{})
	var first atomic.Pointer[string]
	w := h.watch(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		mine := first.CompareAndSwap(nil, &it.Partition)
		begun <- it.Partition
		if mine {
			<-result
		} else {
			<-release
		}
		return done()
	}), Lease(3*time.Second), PartitionConcurrency(1))
	for range concurrency {
		<-begun
	}
	locked := *first.Load()
	tx := s.sql.DB.Begin()
	require.NoError(t, tx.Exec("SET LOCAL idle_in_transaction_session_timeout = 0").Error)
	require.NoError(t, s.InsertTx(t.Context(), tx, locked, Item{ID: "more"}))
	close(result)
	awaitBegin(t, begun, locked)
	p, err := s.Partition(t.Context(), locked)
	require.NoError(t, err)
	require.True(t, p.Until.Before(time.Now()), "the lease has ended")
	close(release)
	for p := range partitions {
		id := fmt.Sprint("p", p)
		if id != locked {
			eventually(t, id+" is processed", func() bool { return counts(t, s, id)[0].Complete == each })
		}
	}
	create(t, s, Partition{ID: "late"}, Item{ID: "late"})
	eventually(t, "what comes later is processed", func() bool { return counts(t, s, "late")[0].Complete == 1 })
	require.NoError(t, tx.Commit().Error)
	eventually(t, "the locked one is processed", func() bool { return counts(t, s, locked)[0].Complete == each+1 })
	require.NoError(t, w.stop(t))
	repeats, _ := h.audit(t)
	require.Zero(t, repeats)
}

// awaitBegin waits for the begin of an item of another partition.
func awaitBegin(t *testing.T, begun <-chan string, not string) {
	t.Helper()
	select {
	case partition := <-begun:
		require.NotEqual(t, not, partition)
	case <-time.After(testWait):
		t.Fatal("nothing begins beside a result that waits for a lock")
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
