package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// TestHistoryOutlivesRetries: Errors are those of the present step, and History is all that failed, before a Retry and at earlier gates, too.
func TestHistoryOutlivesRetries(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		begun := time.Now().Add(-time.Second)
		create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "good"})
		var repaired atomic.Bool
		w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			switch {
			case it.ID == "good":
				return done()
			case it.Gate == 0 && repaired.Load():
				return Response{Gate: new(1)}, nil
			case it.Gate == 0 || it.Attempt == 1:
				return Response{}, fmt.Errorf("gate %d, attempt %d", it.Gate, it.Attempt)
			}
			return done()
		}), MaxRetries(1))
		awaitPartition(t, s, "p", Failed)
		repaired.Store(true)
		n, err := s.RetryFailed(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, 1, n)
		eventually(t, "all are complete", func() bool { return counts(t, s, "p")[1].Complete == 1 })
		require.NoError(t, w.stop(t))
		it, err := s.Item(t.Context(), "p", "a")
		require.NoError(t, err)
		require.Equal(t, []string{"gate 1, attempt 1"}, it.Errors)
		var texts []string
		for _, a := range it.History() {
			require.Equal(t, fmt.Sprintf("gate %d, attempt %d", a.Gate, a.Attempt), a.Error)
			require.WithinRange(t, a.At, begun, time.Now())
			texts = append(texts, a.Error)
		}
		require.Equal(t, []string{"gate 0, attempt 1", "gate 0, attempt 2", "gate 1, attempt 1"}, texts)
		good, err := s.Item(t.Context(), "p", "good")
		require.NoError(t, err)
		require.Empty(t, good.History())

		steps, err := s.Steps(t.Context(), "p")
		require.NoError(t, err)
		require.EqualValues(t, 3, steps, "one of the good item, two of the other")
		_, err = s.Steps(t.Context(), "none")
		require.ErrorIs(t, err, ErrNotFound)
		n, err = s.SkipFailed(t.Context(), "p")
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// TestHistoryIsBounded: a poison item's row does not grow for ever, and what another program wrote is shown as it is.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := &handler{config: newConfig(nil)}
	row := sqlstore.Item{Gate: 3}
	for row.Attempt = 1; row.Attempt <= 100; row.Attempt++ {
		row.History = h.Failed(&row, errors.New(strings.Repeat("é", 1000)+"\x00\xff")).History
	}
	list := itemOf(&row).History()
	require.Len(t, list, 50)
	require.Equal(t, 100, list[49].Attempt)
	require.Equal(t, 3, list[49].Gate)
	require.Equal(t, strings.Repeat("é", 256), list[49].Error)
	require.Equal(t, []Attempt{{Error: "broke"}}, Item{history: new("broke")}.History(), "another program has written what is no list")
	require.Empty(t, Item{}.History())
}

// TestTablesOfBefore: a database that the first version made is brought up to date with its rows.
func TestTablesOfBefore(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		for _, statement := range []string{
			"ALTER TABLE items DROP COLUMN history", "ALTER TABLE items DROP COLUMN crashes", "DELETE FROM feed_migrations WHERE id IN ('0002', '0005')",
		} {
			require.NoError(t, s.sql.DB.Exec(statement).Error)
		}
		create(t, s, Partition{ID: "p"}, Item{ID: "a"})
		require.NoError(t, s.Migrate(t.Context()))
		require.NoError(t, s.Migrate(t.Context()), "again")
		w := startWatcher(t, s, ProcessorFunc(func(context.Context, Item) (Response, error) { return Response{}, errors.New("broken") }),
			MaxRetries(0), MaxCrashes(1))
		awaitPartition(t, s, "p", Failed)
		require.NoError(t, w.stop(t))
		it, err := s.Item(t.Context(), "p", "a")
		require.NoError(t, err)
		require.Len(t, it.History(), 1)
	})
}

// TestNilOptions: an option that is nil is refused and panics nowhere.
func TestNilOptions(t *testing.T) {
	_, err := Open(t.Context(), "sqlite::memory:", nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "StoreOption")
	_, err = NewHTTPProcessor("http://127.0.0.1:1", nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "HTTPOption")
}

// TestRetryInSteps: all Failed items of a large partition are retried or skipped by small transactions, so that leases are renewed in between.
func TestRetryInSteps(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, make([]Item, 2*stepRows+5)...)
		create(t, s, Partition{ID: "none"})
		var most int64
		note := func(db *gorm.DB) {
			if db.Statement.Table == "items" {
				most = max(most, db.RowsAffected)
			}
		}
		require.NoError(t, s.sql.DB.Callback().Update().After("gorm:update").Register("note", note))
		for _, change := range []func(context.Context, string, ...string) (int, error){s.RetryFailed, s.SkipFailed} {
			require.NoError(t, s.sql.DB.Exec("UPDATE items SET status = 'Failed'").Error)
			require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET status = 'Failed'").Error)
			n, err := change(t.Context(), "p")
			require.NoError(t, err)
			require.Equal(t, 2*stepRows+5, n)
			require.Zero(t, counts(t, s, "p")[0].Failed)
			p, err := s.Partition(t.Context(), "p")
			require.NoError(t, err)
			require.Equal(t, Available, p.Status)
			n, err = change(t.Context(), "none")
			require.NoError(t, err)
			require.Zero(t, n)
			_, err = change(t.Context(), "unknown")
			require.ErrorIs(t, err, ErrNotFound)
		}
		require.EqualValues(t, stepRows, most)
	})
}
