package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// closed creates a partition that was closed that long ago, with n items.
func closed(t *testing.T, s *Store, id string, ago time.Duration, n int) {
	t.Helper()
	create(t, s, Partition{ID: id}, make([]Item, n)...)
	require.NoError(t, s.sql.DB.Exec("UPDATE items SET status = 'Complete', data = ? WHERE partition_id = ?", []byte(id), id).Error)
	require.NoError(t, s.ClosePartition(t.Context(), id))
	require.NoError(t, s.sql.DB.Table("partitions").Where("id = ?", id).Update("until", time.Now().Add(-ago).UTC()).Error)
}

func (s *Store) rowsOf(t *testing.T, partition string) (n int64) {
	t.Helper()
	require.NoError(t, s.sql.DB.Table("items").Where("partition_id = ?", partition).Count(&n).Error)
	return n
}

// TestPrune: partitions that were closed long ago are deleted with their items, however many, and nothing else is.
func TestPrune(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		ctx := t.Context()
		closed(t, s, "old", 48*time.Hour, 2*stepRows+500)
		closed(t, s, "empty", 48*time.Hour, 0)
		closed(t, s, "young", time.Hour, 3)
		create(t, s, Partition{ID: "open"}, Item{ID: "a"})
		closed(t, s, "has an open item", 48*time.Hour, 2)
		require.NoError(t, s.sql.DB.Exec("UPDATE items SET status = 'Available', version = version + 1 WHERE partition_id = 'has an open item'").Error)
		closed(t, s, "unknown", 48*time.Hour, 1)
		require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET until = NULL WHERE id = 'unknown'").Error)

		done, err := s.Prune(ctx, 24*time.Hour, nil)
		require.NoError(t, err)
		require.Equal(t, Pruned{Partitions: 2, Items: 2*stepRows + 500}, done)
		require.Equal(t, done, s.Pruned())
		require.Zero(t, s.rowsOf(t, "old"))
		list, err := s.Partitions(ctx, Query{})
		require.NoError(t, err)
		require.Equal(t, []string{"has an open item", "open", "unknown", "young"}, sqlstore.Map(list, func(p *Partition) string { return p.ID }))
		require.EqualValues(t, 3, s.rowsOf(t, "young"))
		require.EqualValues(t, 1, s.rowsOf(t, "unknown"), "its age counts from now")

		eventually(t, "what is closed is pruned at once with the age 0", func() bool {
			_, err := s.Prune(ctx, 0, nil)
			require.NoError(t, err)
			list, err = s.Partitions(ctx, Query{})
			return err == nil && len(list) == 2
		})
		_, err = s.Prune(ctx, -1, nil)
		require.ErrorIs(t, err, ErrInvalid)
	})
}

// TestPruneDatesInSteps: many partitions of an earlier version, whose end is not known, are dated by small transactions.
func TestPruneDatesInSteps(t *testing.T) {
	s := openStore(t, backends[0].fresh(t))
	rows := make([]sqlstore.Partition, 2*stepRows+5)
	for i := range rows {
		rows[i] = sqlstore.Partition{ID: fmt.Sprint(i), Status: sqlstore.Complete, Version: 1}
	}
	require.NoError(t, s.sql.DB.CreateInBatches(rows, 1000).Error)
	var most, all int64
	note := func(db *gorm.DB) { most, all = max(most, db.RowsAffected), all+db.RowsAffected }
	require.NoError(t, s.sql.DB.Callback().Update().After("gorm:update").Register("note", note))
	require.NoError(t, s.sql.DB.Callback().Raw().After("gorm:raw").Register("note", note))
	done, err := s.Prune(t.Context(), time.Hour, nil)
	require.NoError(t, err)
	require.Zero(t, done)
	require.EqualValues(t, stepRows, most)
	require.EqualValues(t, len(rows), all)
}

// TestPruneReadsWhatItDeletes: on PostgreSQL no step of Prune reads what the steps before it have deleted, of which an index has the entries until
// a vacuum. Otherwise the time grows with the square of the number of items.
func TestPruneReadsWhatItDeletes(t *testing.T) {
	t.Parallel()
	const items = 40 * stepRows
	s := openStore(t, backends[1].fresh(t))
	for _, statement := range []string{
		"ALTER TABLE items SET (autovacuum_enabled = off)",
		"INSERT INTO partitions (id, gate, status, sealed, version) VALUES ('p', 0, 'Available', TRUE, 1)",
		"INSERT INTO items (partition_id, id, gate, status, data, version) SELECT 'p', 'i' || n, 0, 'Complete', NULL, 1 FROM " + numbers("postgres", items),
		"ANALYZE",
	} {
		require.NoError(t, s.sql.DB.Exec(statement).Error)
	}
	require.NoError(t, s.ClosePartition(t.Context(), "p"))
	var steps []asked
	note := func(db *gorm.DB) {
		if text := db.Statement.SQL.String(); strings.Contains(text, "OFFSET") {
			steps = append(steps, asked{text, slices.Clone(db.Statement.Vars)})
		}
	}
	require.NoError(t, s.sql.DB.Callback().Query().After("gorm:query").Register("note", note))
	done, err := s.Prune(t.Context(), 0, nil)
	require.NoError(t, err)
	require.Equal(t, Pruned{1, items}, done)
	require.Len(t, steps, items/stepRows+1)
	awaitOlderTransactions(t, s)
	pool, err := s.sql.DB.DB()
	require.NoError(t, err)
	r := &recorder{DB: pool, queries: steps[items/stepRows-1 : items/stepRows]}
	buffers(t, r) // it marks entries of rows that are gone
	require.LessOrEqual(t, buffers(t, r), 100, "%s", r.queries[0].sql)
}

// TestPruneExports: all is exported before it is deleted; where the export fails, nothing is, and the partition can be opened.
func TestPruneExports(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		ctx := t.Context()
		closed(t, s, "a", 48*time.Hour, stepRows+7)
		closed(t, s, "b", 48*time.Hour, 2)
		full := errors.New("no space left")
		_, err := s.Prune(ctx, time.Hour, func(_ Partition, items iter.Seq2[Item, error]) error {
			for range items {
				break
			}
			return full
		})
		require.ErrorIs(t, err, full)
		require.EqualValues(t, stepRows+7, s.rowsOf(t, "a"))
		require.NoError(t, s.Reopen(ctx, "a"))
		require.NoError(t, s.ClosePartition(ctx, "a"))

		exported, pruned := map[string]int{}, s.Pruned()
		done, err := s.Prune(ctx, 0, func(p Partition, items iter.Seq2[Item, error]) error {
			require.Equal(t, Complete, p.Status)
			last := ""
			for it, err := range items {
				require.NoError(t, err)
				require.Greater(t, it.ID, last)
				require.Equal(t, p.ID, string(it.Data))
				require.Equal(t, pruned, s.Pruned(), "rows count once they are deleted, also before Prune returns")
				last = it.ID
				exported[p.ID]++
			}
			pruned.Partitions++
			pruned.Items += exported[p.ID]
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, pruned, s.Pruned())
		require.Equal(t, Pruned{Partitions: 2, Items: stepRows + 9}, done)
		require.Equal(t, map[string]int{"a": stepRows + 7, "b": 2}, exported)
	})
}

// TestPruneAndChanges: a partition that changed since it was read is not deleted, and another Prune deletes nothing that the first has yet to
// export and fails to.
func TestPruneAndChanges(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		ctx := t.Context()
		closed(t, s, "a", 48*time.Hour, 2)
		closed(t, s, "b", 48*time.Hour, stepRows+7)
		reopen := func(p Partition, _ iter.Seq2[Item, error]) error {
			if p.ID == "a" { // b was read with it
				require.NoError(t, s.Reopen(ctx, "b"))
				require.NoError(t, s.ClosePartition(ctx, "b"))
			}
			return nil
		}
		done, err := s.Prune(ctx, time.Hour, reopen)
		require.NoError(t, err)
		require.Equal(t, Pruned{Partitions: 1, Items: 2}, done)
		require.EqualValues(t, stepRows+7, s.rowsOf(t, "b"))

		full, inner := errors.New("no space left"), 0
		_, err = s.Prune(ctx, 0, func(Partition, iter.Seq2[Item, error]) error {
			_, err := s.Prune(ctx, 0, func(_ Partition, items iter.Seq2[Item, error]) error {
				for range items {
					inner++
				}
				return full
			})
			require.ErrorIs(t, err, full)
			return full
		})
		require.ErrorIs(t, err, full)
		require.Equal(t, stepRows+7, inner, "the other Prune exports it too")
		require.EqualValues(t, stepRows+7, s.rowsOf(t, "b"))
		require.NoError(t, s.Reopen(ctx, "b"))
	})
}

// TestPruneNoticesUnreadItems: an export that ignores the error of its items is refused.
func TestPruneNoticesUnreadItems(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		closed(t, s, "a", 48*time.Hour, stepRows+7)
		ctx, cancel := context.WithCancel(t.Context())
		read := 0
		_, err := s.Prune(ctx, time.Hour, func(_ Partition, items iter.Seq2[Item, error]) error {
			for range items {
				read++
				cancel() // the second page cannot be read
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, `prune partition "a": export`)
		require.Equal(t, stepRows+1, read)
		require.EqualValues(t, stepRows+7, s.rowsOf(t, "a"))
	})
}

// TestPruneGoesOn: what a process that ended early has left is deleted by the next. It was exported.
func TestPruneGoesOn(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		ctx := t.Context()
		closed(t, s, "a", 48*time.Hour, 5)
		row := sqlstore.Partition{}
		require.NoError(t, s.sql.DB.First(&row, "id = ?", "a").Error)
		marked, err := mark(ctx, s.sql, &row)
		require.NoError(t, err)
		require.True(t, marked)
		marked, err = mark(ctx, s.sql, &row)
		require.NoError(t, err)
		require.False(t, marked, "it has changed")
		p, err := s.Partition(ctx, "a")
		require.NoError(t, err)
		require.Equal(t, Status(sqlstore.Pruning), p.Status)
		require.ErrorIs(t, s.Reopen(ctx, "a"), ErrNotFound, "it is being deleted")
		require.ErrorIs(t, s.Insert(ctx, "a", Item{}), ErrNotFound)
		w := startWatcher(t, s, ProcessorFunc(func(context.Context, Item) (Response, error) { return done() }))
		done, err := s.Prune(ctx, 1000*time.Hour, func(Partition, iter.Seq2[Item, error]) error { return errors.New("exported again") })
		require.NoError(t, err)
		require.Equal(t, Pruned{Partitions: 1, Items: 5}, done)
		require.NoError(t, w.stop(t))
		create(t, s, Partition{ID: "a"})
	})
}

// TestPruneBesideWork: partitions are opened again, closed and worked on while others are pruned; no item that is to be
// processed is deleted.
func TestPruneBesideWork(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		ctx := t.Context()
		w := startWatcher(t, s, finish, AutoClose())
		pruned := make(chan error, 1)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					pruned <- nil
					return
				default:
				}
				if _, err := s.Prune(ctx, 0, nil); err != nil {
					pruned <- err
					return
				}
			}
		}()
		inserted := int64(0)
		for n := range 30 {
			id := fmt.Sprint("p", n)
			create(t, s, Partition{ID: id, Sealed: true}, make([]Item, 20)...)
			inserted += 20
			if err := s.Reopen(ctx, id); err != nil {
				require.ErrorIs(t, err, ErrNotFound)
				continue
			}
			if err := s.Insert(ctx, id, Item{ID: "more", Gate: 9}); err == nil {
				inserted++
			} else {
				require.True(t, errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed), err)
			}
			if err := s.Seal(ctx, id); err != nil {
				require.ErrorIs(t, err, ErrNotFound)
			}
		}
		eventually(t, "all was processed and pruned", func() bool {
			list, err := s.Partitions(ctx, Query{})
			return err == nil && len(list) == 0
		})
		close(stop)
		require.NoError(t, <-pruned)
		require.NoError(t, w.stop(t))
		require.EqualValues(t, inserted, s.Pruned().Items)
	})
}
