package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/pgtest"
)

var finish = ProcessorFunc(func(context.Context, Item) (Response, error) { return done() })

// complaints counts what a watcher logs of its database's errors.
type complaints struct {
	slog.Handler
	n *atomic.Int64
}

func complain() complaints { return complaints{slog.DiscardHandler, new(atomic.Int64)} }

func (c complaints) Enabled(context.Context, slog.Level) bool { return true }

func (c complaints) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "feed: database" {
		c.n.Add(1)
	}
	return nil
}

// more waits for n more errors than there are.
func (c complaints) more(t *testing.T, n int64) {
	t.Helper()
	n += c.n.Load()
	eventually(t, "the watcher complains of the database", func() bool { return c.n.Load() >= n })
}

func (c complaints) option() WatcherOption { return Logger(slog.New(c)) }

func stopAll(t *testing.T, watchers []*running) {
	t.Helper()
	for _, w := range watchers {
		require.NoError(t, w.stop(t))
	}
}

// TestWatchersRaceForLeases: many watchers want the same partitions, and each has one owner.
func TestWatchersRaceForLeases(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, dsn string) {
		h := newHistory(t, s, 4)
		var watchers []*running
		for range 6 {
			watchers = append(watchers, h.watch(t, openStore(t, dsn), finish, AutoClose(), MaxPartitions(3)))
		}
		for p := range 24 {
			create(t, s, Partition{ID: fmt.Sprint("p", p), Sealed: true}, Item{}, Item{}, Item{Gate: 1})
		}
		eventually(t, "all is complete", func() bool { return allComplete(t, s) })
		stopAll(t, watchers)
		repeats, takeovers := h.check(t)
		require.Zero(t, repeats+takeovers)
	})
}

// ownServer is a PostgreSQL server that the test may crash.
func ownServer(t *testing.T, settings ...string) *pgtest.Server {
	t.Helper()
	if os.Getenv(pgtest.Env) != "" {
		t.Skip("the server of " + pgtest.Env + " is not ours to crash")
	}
	server, err := pgtest.Start(t.Context(), settings...)
	if errors.Is(err, pgtest.ErrNone) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	return server
}

// TestDatabaseCrashes: the server is stopped hard in the middle of work, and started again.
func TestDatabaseCrashes(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	dsn, err := server.Database(t.Context())
	require.NoError(t, err)
	s := openStore(t, dsn)
	h := newHistory(t, s, 8)
	log := complain()
	watchers := []*running{
		h.watch(t, openStore(t, dsn), finish, AutoClose(), Lease(time.Second), log.option()),
		h.watch(t, openStore(t, dsn), finish, AutoClose(), Lease(time.Second), log.option()),
	}
	var w work
	for range faultRounds() {
		begun := h.count(t, "begin")
		w.until(t, s, "work goes on", func() bool { return h.count(t, "begin") > begun+20 })
		server.Crash()
		log.more(t, 2)
		require.NoError(t, server.Restart(t.Context()))
		eventually(t, "the server is back", func() bool { _, err := s.Partitions(t.Context(), Query{Limit: 1}); return err == nil })
	}
	eventually(t, "all is complete", func() bool { return allComplete(t, s) })
	stopAll(t, watchers)
	h.check(t)
}

// TestCommitsAreCut: connections break in COMMIT, before the server has it or before the client has the answer.
// No lease ends for that, so nothing is repeated, and an insert that is tried again is taken once.
func TestCommitsAreCut(t *testing.T) {
	t.Parallel()
	partitions := 60
	if testing.Short() {
		partitions = 4
	}
	dsn := backends[1].fresh(t)
	s := openStore(t, dsn)
	h := newHistory(t, s, 8)
	proxy, through := newCutter(t, dsn, 15)
	proxy.off.Store(true)
	cut := openStore(t, through)
	watchers := []*running{h.watch(t, cut, finish, AutoClose()), h.watch(t, openStore(t, through), finish, AutoClose())}
	proxy.off.Store(false)
	again := func(what string, accept error, do func() error) {
		eventually(t, what, func() bool {
			err := do()
			return err == nil || errors.Is(err, accept)
		})
	}
	for p := range partitions {
		id := fmt.Sprint("p", p)
		again("the partition is created", ErrDuplicate, func() error {
			_, err := cut.CreatePartition(t.Context(), Partition{ID: id}, Item{ID: "first"})
			return err
		})
		for i := range 20 {
			it := Item{ID: fmt.Sprint("i", i), Gate: 1}
			again("the item is inserted", ErrDuplicate, func() error { return cut.Insert(t.Context(), id, it) })
		}
		again("the partition is sealed", nil, func() error { return cut.Seal(t.Context(), id) })
	}
	eventually(t, "all is complete", func() bool { return allComplete(t, s) })
	proxy.off.Store(true)
	stopAll(t, watchers)
	repeats, _ := h.check(t)
	require.Zero(t, repeats)
	items, err := s.Items(t.Context(), Query{Limit: 1 << 20})
	require.NoError(t, err)
	require.Len(t, items, partitions*21)
	require.NotZero(t, proxy.cuts[0].Load())
	require.NotZero(t, proxy.cuts[1].Load())
	t.Logf("%d requests and %d answers cut", proxy.cuts[0].Load(), proxy.cuts[1].Load())
}

// TestStuckTransaction: a partition whose row somebody keeps locked is not leased, and others are. A transaction of a
// Store whose process does not go on is ended by the server.
func TestStuckTransaction(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	s := openStore(t, dsn)
	for i := range 3 {
		create(t, s, Partition{ID: fmt.Sprint("p", i), Sealed: true}, Item{}, Item{Gate: 1})
	}
	other, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer other.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{"BEGIN", "SELECT 1 FROM partitions WHERE id = 'p0' FOR UPDATE"} {
		_, err := other.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	w := startWatcher(t, s, finish, AutoClose())
	awaitPartition(t, s, "p1", Complete)
	awaitPartition(t, s, "p2", Complete)
	_, err = other.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	awaitPartition(t, s, "p0", Complete)
	require.NoError(t, w.stop(t))

	impatient := openStore(t, dsn+"&idle_in_transaction_session_timeout=250", NoMigrate())
	tx := impatient.sql.DB.Begin()
	require.NoError(t, tx.Exec("SELECT 1 FROM partitions FOR UPDATE").Error)
	require.NoError(t, s.Reopen(t.Context(), "p0"), "the server ends the transaction that has the lock")
	tx.Rollback()
}

// TestSQLiteBusy: another connection has the lock for longer than a writer waits, and than a lease.
func TestSQLiteBusy(t *testing.T) {
	t.Parallel()
	dsn := backends[0].fresh(t)
	s := openStore(t, dsn)
	h := newHistory(t, s, 8)
	log := complain()
	// Handlers that have begun end once the lock is taken.
	var hold sync.RWMutex
	held := ProcessorFunc(func(context.Context, Item) (Response, error) {
		hold.RLock()
		defer hold.RUnlock()
		return done()
	})
	var watchers []*running
	for range 2 {
		impatient := openStore(t, dsn)
		impatient.sql.Patience = 100 * time.Millisecond
		watchers = append(watchers, h.watch(t, impatient, held, AutoClose(), Lease(time.Second), Poll(50*time.Millisecond, 200*time.Millisecond),
			log.option()))
	}
	var w work
	for range min(faultRounds(), 20) {
		hold.Lock()
		begun := h.count(t, "begin")
		w.add(t, s)
		eventually(t, "handlers have begun", func() bool { return h.count(t, "begin") > begun })
		tx := s.sql.DB
		eventually(t, "the database is locked here", func() bool { tx = s.sql.DB.Begin(); return tx.Error == nil })
		hold.Unlock()
		log.more(t, 3)
		eventually(t, "the leases have expired", func() bool {
			var live int64
			err := s.sql.DB.Table("partitions p").Where("p.owner <> '' AND NOT " + s.sql.Dialect.Past("p.until")).Count(&live).Error
			return err == nil && live == 0
		})
		require.NoError(t, tx.Rollback().Error)
	}
	eventually(t, "all is complete", func() bool { return allComplete(t, s) })
	stopAll(t, watchers)
	h.check(t)
}

// TestSQLiteBusyEnds: what waits for the lock of another process ends with its context: SQLite's own wait, which no
// context ends, is a moment.
func TestSQLiteBusyEnds(t *testing.T) {
	t.Parallel()
	dsn := backends[0].fresh(t)
	s, other := openStore(t, dsn), openStore(t, dsn)
	create(t, s, Partition{ID: "p"}, Item{ID: "a"})
	var ms int
	require.NoError(t, s.sql.DB.Raw("PRAGMA busy_timeout").Scan(&ms).Error)
	require.LessOrEqual(t, ms, 100)
	tx := other.sql.DB.Begin() // takes the lock at once
	require.NoError(t, tx.Error)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Insert(ctx, "p", Item{ID: "b"}), context.DeadlineExceeded)
	inserted := make(chan error, 1)
	go func() { inserted <- s.Insert(t.Context(), "p", Item{ID: "c"}) }()
	require.Never(t, func() bool { return len(inserted) > 0 }, 8*busyTimeout, busyTimeout, "it waits")
	require.NoError(t, tx.Rollback().Error)
	require.NoError(t, <-inserted)
}

// busyTimeout is how long SQLite waits by itself.
const busyTimeout = 100 * time.Millisecond

// large finishes items with more data than a full disk takes.
var large = ProcessorFunc(func(context.Context, Item) (Response, error) {
	return Response{Done: true, Data: []byte(strings.Repeat("x", 50_000))}, nil
})

// TestSQLiteFull: the file may not grow while results are to be saved, until space is freed.
func TestSQLiteFull(t *testing.T) {
	t.Parallel()
	dsn := backends[0].fresh(t)
	s := openStore(t, dsn)
	h := newHistory(t, s, 8)
	for p := range 3 {
		create(t, s, Partition{ID: fmt.Sprint("p", p), Sealed: true}, make([]Item, 20)...)
	}
	require.NoError(t, s.sql.DB.Exec("CREATE TABLE ballast AS SELECT zeroblob(8000000) AS b").Error)
	var pages int
	require.NoError(t, s.sql.DB.Raw("PRAGMA page_count").Scan(&pages).Error)
	log := complain()
	w := h.watch(t, openStore(t, fmt.Sprintf("%s&_pragma=max_page_count(%d)", dsn, pages+20)), large, AutoClose(), log.option())
	log.more(t, 3)
	require.False(t, allComplete(t, s))
	eventually(t, "the file is not locked, and space is freed", func() bool { return s.sql.DB.Exec("DROP TABLE ballast").Error == nil })
	eventually(t, "all is complete", func() bool { return allComplete(t, s) })
	require.NoError(t, w.stop(t))
	repeats, _ := h.check(t)
	require.Zero(t, repeats)
}

// TestPostgresFull: the same with PostgreSQL on a file system that is full.
func TestPostgresFull(t *testing.T) {
	dir, err := os.MkdirTemp("", "feed-full-") //nolint:usetesting // the server's user cannot enter t.TempDir
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
		t.Skipf("a small file system needs root: mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	t.Setenv("TMPDIR", dir)
	server := ownServer(t, "max_wal_size=32MB", "min_wal_size=32MB")
	dsn, err := server.Database(t.Context())
	require.NoError(t, err)
	s := openStore(t, dsn)
	h := newHistory(t, s, 8)
	for p := range 3 {
		create(t, s, Partition{ID: fmt.Sprint("p", p), Sealed: true}, make([]Item, 40)...)
	}
	ballast := filepath.Join(dir, "ballast")
	fillDisk(t, ballast)
	log := complain()
	incompressible := ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		data := make([]byte, 50_000)
		for i := range data {
			data[i] = byte(i * i >> 3 * int(it.ID[len(it.ID)-1]) % 251)
		}
		return Response{Done: true, Data: data}, nil
	})
	w := h.watch(t, s, incompressible, AutoClose(), log.option())
	log.more(t, 3)
	require.NoError(t, os.Remove(ballast))
	eventually(t, "all is complete", func() bool { return allComplete(t, s) })
	require.NoError(t, w.stop(t))
	repeats, _ := h.check(t)
	require.Zero(t, repeats)
}

// fillDisk writes until nothing more fits.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for chunk := make([]byte, 1<<16); ; {
		if _, err := f.Write(chunk); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			return
		}
	}
}

// TestNATSDown: the server of the wake-ups is never there.
func TestNATSDown(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, dsn string) {
		nc, err := nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
		require.NoError(t, err)
		defer nc.Close()
		h := newHistory(t, s, 8)
		w := h.watch(t, s, finish, AutoClose(), Wakeups(nc))
		other := openStore(t, dsn, PublishWakeups(nc))
		for p := range 10 {
			create(t, other, Partition{ID: fmt.Sprint("p", p), Sealed: true}, Item{}, Item{Gate: 1})
		}
		eventually(t, "all is complete", func() bool { return allComplete(t, s) })
		require.NoError(t, w.stop(t))
		repeats, _ := h.check(t)
		require.Zero(t, repeats)
	})
}

// TestPoison: whatever a handler does in its process, its item alone is Failed, and holds its gate until it is skipped.
func TestPoison(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		poison := map[string]func(){
			"panics": func() { panic("poison") }, "exits": runtime.Goexit, "divides": func() { zero := 0; _ = 1 / zero },
			"aborts": func() { panic(http.ErrAbortHandler) },
		}
		items := append(make([]Item, 20), Item{ID: "last", Gate: 1})
		for id := range poison {
			items = append(items, Item{ID: id})
		}
		h := newHistory(t, s, 4)
		create(t, s, Partition{ID: "p", Sealed: true}, items...)
		w := h.watch(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			if bad := poison[it.ID]; bad != nil {
				bad()
			}
			return done()
		}), AutoClose(), MaxRetries(2))
		awaitPartition(t, s, "p", Failed)
		require.Equal(t, map[int]Counts{0: {Complete: 20, Failed: len(poison)}, 1: {Available: 1}}, counts(t, s, "p"))
		for id := range poison {
			it, err := s.Item(t.Context(), "p", id)
			require.NoError(t, err)
			require.Len(t, it.Errors, 3, id)
		}
		repeats, _ := h.audit(t)
		require.Zero(t, repeats)
		require.NoError(t, s.Skip(t.Context(), "p"))
		awaitPartition(t, s, "p", Complete)
		require.NoError(t, w.stop(t))
	})
}

// TestBadAnswers: the first answers for each item are none, or not what they should be.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		hung := make(chan struct{})
		defer close(hung)
		bad := []http.HandlerFunc{
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat(" ", maxAnswer)+`{"done":true}`)
			},
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") },
			func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-r.Context().Done():
				case <-hung:
				}
			},
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, `{"done":true}`)
			},
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var which, attempt int
			_, err := fmt.Sscan(r.Header.Get(HeaderItem)+" "+r.Header.Get(HeaderAttempt), &which, &attempt)
			if err == nil && attempt == 1 {
				bad[which%len(bad)](w, r)
				return
			}
			_, _ = io.WriteString(w, `{"done":true}`)
		}))
		defer srv.Close()
		p, err := NewHTTPProcessor(srv.URL, Timeout(500*time.Millisecond))
		require.NoError(t, err)
		h := newHistory(t, s, 4)
		var items []Item
		for i := range 3 * len(bad) {
			items = append(items, Item{ID: fmt.Sprint(i)})
		}
		create(t, s, Partition{ID: "p", Sealed: true}, append(items, Item{ID: "10000", Gate: 1})...)
		w := h.watch(t, s, p, AutoClose(), MaxRetries(-1))
		awaitPartition(t, s, "p", Complete)
		require.NoError(t, w.stop(t))
		repeats, _ := h.check(t)
		require.Zero(t, repeats)
		require.GreaterOrEqual(t, h.count(t, "failed"), len(items))
	})
}
