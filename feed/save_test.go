package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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

// TestRefusedByAnyCode: whatever the code with which the database refuses a row, its item alone fails. If it refuses the failed attempt, too,
// the item stays as it is, and others go on.
func TestRefusedByAnyCode(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"42501", "ZZ001", "38000", "XX000", "0A000", "55000", "57014", "55P03", "40001"} {
		t.Run(code, func(t *testing.T) {
			s := openStore(t, backends[1].fresh(t))
			s.sql.Patience = 20 * time.Millisecond
			itself := code < "40" || code > "41" && code < "55P" || code > "58"
			require.NoError(t, s.sql.DB.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF NEW.id = 'always' OR (NEW.id = 'done' AND NEW.status = 'Complete') THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '`+code+`'; END IF;
				RETURN NEW; END $$`).Error)
			require.NoError(t, s.sql.DB.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION refuse()").Error)
			create(t, s, Partition{ID: "a"}, append(make([]Item, 100), Item{ID: "done"}, Item{ID: "always"})...)
			create(t, s, Partition{ID: "b"}, make([]Item, 200)...)
			var always atomic.Int64
			w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
				if it.ID == "always" {
					always.Add(1)
				}
				return done()
			}), MaxRetries(1), Concurrency(32))
			eventually(t, "all others are saved", func() bool { return counts(t, s, "b")[0].Complete == 200 && counts(t, s, "a")[0].Complete == 100 })
			if itself {
				eventually(t, "the one is Failed", func() bool { return counts(t, s, "a")[0].Failed == 1 })
				it, err := s.Item(t.Context(), "a", "done")
				require.NoError(t, err)
				require.Equal(t, Failed, it.Status)
				require.Contains(t, it.Errors[0], "not this one")
			}
			create(t, s, Partition{ID: "c"}, make([]Item, 100)...)
			eventually(t, "the watcher goes on", func() bool { return counts(t, s, "c")[0].Complete == 100 })
			require.EqualValues(t, 1, always.Load(), "its handler is not called again")
			require.NoError(t, s.sql.DB.Exec("DROP TRIGGER refuse ON items").Error)
			eventually(t, "it is processed", func() bool { return counts(t, s, "a")[0].Available == 0 })
			require.NoError(t, w.stop(t))
		})
	}
}

// TestOutageIsNotRefused: what fails for a statement without items, too, is no fault of theirs.
func TestOutageIsNotRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[1].fresh(t))
	create(t, s, Partition{ID: "p"}, make([]Item, 20)...)
	log, release := complain(), make(chan struct{})
	w := startWatcher(t, s, ProcessorFunc(func(context.Context, Item) (Response, error) {
		<-release
		return done()
	}), MaxRetries(0), log.option())
	eventually(t, "items have begun", func() bool { p, err := s.Partition(t.Context(), "p"); return err == nil && p.Owner != "" })
	require.NoError(t, s.sql.DB.Exec("ALTER TABLE items RENAME COLUMN history TO past").Error)
	close(release)
	log.more(t, 3)
	require.NoError(t, s.sql.DB.Exec("ALTER TABLE items RENAME COLUMN past TO history").Error)
	eventually(t, "all are saved", func() bool { return counts(t, s, "p")[0].Complete == 20 })
	require.NoError(t, w.stop(t))
}

// TestStatementTimeout: items of 1 MB are fetched and saved though a statement may take no longer than one of a few of them does.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	s := openStore(t, dsn)
	const items, each = 60, 1 << 20
	var took []time.Duration // of one, on a machine that may be busy
	for range items {
		begun := time.Now()
		if err := s.Insert(t.Context(), "p", Item{Data: bytes.Repeat([]byte{7}, each)}); errors.Is(err, ErrNotFound) {
			create(t, s, Partition{ID: "p"}, Item{Data: bytes.Repeat([]byte{7}, each)})
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	short := openStore(t, fmt.Sprintf("%s&statement_timeout=%d", dsn, max(50, 2*took[items/2].Milliseconds())))
	w := start(t, NewWatcher(short, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		return Response{Done: true, Data: bytes.ToUpper(it.Data)}, nil
	}), quick()...))
	eventually(t, "all are saved", func() bool { return counts(t, s, "p")[0].Complete == items })
	require.NoError(t, w.stop(t))
}

// TestDataIsNotFormatted: no layer below makes a text of an item's data, for a log or an error that nobody reads: that took most of the
// processor's time. A byte becomes about four of text.
func TestDataIsNotFormatted(t *testing.T) {
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		const size, copies = 8 << 20, 9
		create(t, s, Partition{ID: "p"}, Item{ID: "a"})
		l := leaseOne(t, s, theTerms)
		data := bytes.Repeat([]byte{200}, size)
		allocated := func(what string, do func()) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			do()
			runtime.ReadMemStats(&after)
			most := float64(after.TotalAlloc-before.TotalAlloc) / size
			t.Logf("%s: %.1f bytes for a byte", what, most)
			require.Less(t, most, float64(copies), what)
		}
		allocated("save", func() {
			saved, err := s.sql.Save(t.Context(), theTerms, []sqlstore.Result{{Lease: l, Item: "a", Version: 1, Status: sqlstore.Available, Data: data}})
			require.NoError(t, err)
			require.Equal(t, []bool{true}, saved)
		})
		allocated("fetch", func() { require.Len(t, fetchAll(t, s, theTerms, l)[0].Data, size) })
		allocated("insert", func() { require.NoError(t, s.Insert(t.Context(), "p", Item{Data: data})) })
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
