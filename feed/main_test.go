package feed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/internal/pgtest"
)

var shared pgtest.Shared

// TestMain lets the test binary be a process that is killed.
func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		if err := child(dsn); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	// Most tests wait for leases, polls and locks, on however few processors.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	code := m.Run()
	shared.Stop()
	os.Exit(code)
}

// backend is a kind of database. Each call of fresh names an empty one.
type backend struct {
	name  string
	fresh func(t *testing.T) (dsn string)
}

var backends = []backend{
	// Neither database waits for its disk: no test ends the machine.
	{"sqlite", func(t *testing.T) string {
		return "sqlite:" + filepath.Join(t.TempDir(), "feed.db") + "?_pragma=synchronous(OFF)"
	}},
	{"postgres", func(t *testing.T) string {
		server, err := shared.Get(t.Context())
		if errors.Is(err, pgtest.ErrNone) {
			t.Skip(err)
		}
		require.NoError(t, err)
		return emptyDatabase(t, server)
	}},
	{"sqlserver", func(t *testing.T) string {
		dsn := os.Getenv("FEED_TEST_SQLSERVER")
		if dsn == "" {
			t.Skip("FEED_TEST_SQLSERVER names no server")
		}
		s := openStore(t, dsn, NoMigrate())
		for _, table := range []string{"items", "partitions", "feed_migrations", "feed_limits", "feed_watchers", "feed_cancels"} {
			require.NoError(t, s.sql.DB.Exec("DROP TABLE IF EXISTS "+table).Error)
		}
		return dsn
	}},
}

// spare are databases of tests that have ended.
var spare struct {
	mu   sync.Mutex
	dsns []string
}

// emptyDatabase is a database of a test that has ended, or a new one. At the end of the test others may have it.
func emptyDatabase(t *testing.T, server *pgtest.Server) (dsn string) {
	spare.mu.Lock()
	if last := len(spare.dsns) - 1; last >= 0 {
		dsn, spare.dsns = spare.dsns[last], spare.dsns[:last]
	}
	spare.mu.Unlock()
	if dsn == "" {
		var err error
		dsn, err = server.Database(t.Context())
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		require.NoError(t, server.Empty(context.WithoutCancel(t.Context()), dsn))
		spare.mu.Lock()
		defer spare.mu.Unlock()
		spare.dsns = append(spare.dsns, dsn)
	})
	return dsn
}

// unknown is PostgreSQL as a database of which the feed knows nothing.
type unknown struct{ gorm.Dialector }

func (unknown) Name() string { return "unknown" }

// Translate is GORM's hook.
func (u unknown) Translate(err error) error {
	return u.Dialector.(gorm.ErrorTranslator).Translate(err)
}

const unknownPrefix = "unknown:"

func openStore(t *testing.T, dsn string, opts ...StoreOption) *Store {
	t.Helper()
	if of, found := strings.CutPrefix(dsn, unknownPrefix); found {
		db, err := gorm.Open(unknown{postgres.Open(of)}, &gorm.Config{})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		t.Cleanup(func() { pool.Close() })
		s, err := NewStore(t.Context(), db, opts...)
		require.NoError(t, err)
		return s
	}
	s, err := Open(t.Context(), dsn, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// onEach runs a test on a store of each kind.
func onEach(t *testing.T, test func(t *testing.T, s *Store, dsn string)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			dsn := b.fresh(t)
			test(t, openStore(t, dsn), dsn)
		})
	}
}

// onEvery runs a test also where all goes through the portable path.
func onEvery(t *testing.T, test func(t *testing.T, s *Store, dsn string)) {
	onEach(t, test)
	t.Run("unknown", func(t *testing.T) {
		dsn := unknownPrefix + backends[1].fresh(t)
		test(t, openStore(t, dsn), dsn)
	})
}
