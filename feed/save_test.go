package feed

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// refuseLong has the database refuse items with 1,000 bytes of data, as a rule of its operator's.
func refuseLong(t *testing.T, s *Store) {
	t.Helper()
	rule := "ALTER TABLE items ADD CHECK (length(data) < 1000)"
	switch s.sql.Dialect.Name {
	case "sqlite":
		rule = "CREATE TRIGGER short BEFORE UPDATE ON items WHEN length(NEW.data) >= 1000 BEGIN SELECT RAISE(ABORT, 'too long'); END"
	case "sqlserver":
		rule = "ALTER TABLE items ADD CHECK (DATALENGTH(data) < 1000)"
	}
	require.NoError(t, s.sql.DB.Exec(rule).Error)
}

// TestRefusedResult: one result that the database refuses is a failed attempt, and all others are saved.
func TestRefusedResult(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		refuseLong(t, s)
		create(t, s, Partition{ID: "a"}, Item{ID: "long", Data: []byte("as it was")})
		create(t, s, Partition{ID: "b"}, make([]Item, 50)...)
		w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			if it.ID == "long" {
				return Response{Done: true, Data: make([]byte, 1000)}, nil
			}
			return done()
		}), MaxRetries(1), Concurrency(8))
		eventually(t, "all others are saved", func() bool { return counts(t, s, "b")[0].Complete == 50 })
		awaitPartition(t, s, "a", Failed)
		require.NoError(t, w.stop(t))
		it, err := s.Item(t.Context(), "a", "long")
		require.NoError(t, err)
		require.Equal(t, Failed, it.Status)
		require.Equal(t, "as it was", string(it.Data))
		require.Len(t, it.Errors, 2)
		require.Contains(t, it.Errors[0], "the database refused the result")
	})
}

// TestResultTooLarge: what no database takes is refused without asking one.
func TestResultTooLarge(t *testing.T) {
	s := openStore(t, backends[0].fresh(t))
	_, err := s.sql.Save(t.Context(), theTerms, []sqlstore.Result{{Data: make([]byte, sqlstore.MaxData+1)}})
	require.ErrorIs(t, err, ErrInvalid)
	require.True(t, sqlstore.Refused(err))
}

// weighed notes how much data the largest statement saves. Each takes a second, so that what is ready gathers.
type weighed struct {
	engine.Tables
	most atomic.Int64
}

func (w *weighed) Save(ctx context.Context, t sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	time.Sleep(time.Second)
	size := int64(0)
	for _, r := range results {
		size += int64(len(r.Data))
	}
	w.most.Store(max(size, w.most.Load()))
	return w.Tables.Save(ctx, t, results)
}

// TestBatchesAreBounded: results with much data are saved by several statements.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const items, each = 12, 2 << 20
		c := newClient()
		c.create(Partition{ID: "p"})
		require.NoError(t, c.insert(t.Context(), "p", make([]Item, items)...))
		data := make([]byte, each)
		w := NewWatcher(nil, ProcessorFunc(func(context.Context, Item) (Response, error) {
			return Response{Done: true, Data: data}, nil
		}), append(quick(), Concurrency(items))...)
		tables := &weighed{Tables: c}
		w.tables = tables
		run := start(t, w)
		time.Sleep(time.Minute)
		require.EqualValues(t, items, w.Stats().Completed)
		require.NoError(t, run.stop(t))
		require.LessOrEqual(t, tables.most.Load(), int64(engine.SaveBytes+each))
	})
}
