package feed

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// A database of a build before 0.1.0 has a partition with an item in each status and one that nobody has finished. This build opens
// it, knows all that it has, and finishes what is left.
func TestDatabaseOfAnEarlierBuild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed.db")
	unpack(t, filepath.Join("testdata", "store-before-0.1.0.db.gz"), path)
	s, err := Open(t.Context(), "sqlite:"+path)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()), "again")

	item, err := s.Item(t.Context(), "half", "done")
	require.NoError(t, err)
	require.Equal(t, Complete, item.Status)
	require.Equal(t, `"result"`, string(item.Data))
	item, err = s.Item(t.Context(), "half", "failed")
	require.NoError(t, err)
	require.Equal(t, Failed, item.Status)
	history := item.History()
	require.Len(t, history, 1)
	require.Equal(t, "no good", history[0].Error)
	before, err := s.Items(t.Context(), Query{Partition: "untouched"})
	require.NoError(t, err)
	require.Len(t, before, 2)
	require.Len(t, before[0].ID, 20, "an ID that the earlier build gave")

	require.NoError(t, s.Skip(t.Context(), "half", "failed"))
	require.NoError(t, s.Insert(t.Context(), "half", Item{ID: "new", Gate: 1, Data: []byte("6")}))
	require.NoError(t, s.Seal(t.Context(), "half"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w := NewWatcher(s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		return Response{Done: true, Data: append([]byte("did "), it.Data...)}, nil
	}), AutoClose(), Logger(slog.New(slog.DiscardHandler)), Limits(Limit{Gate: 1, Concurrency: 2, Rate: 100, Per: time.Second}))
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	for _, id := range []string{"half", "untouched"} {
		eventually(t, id+" is complete", func() bool {
			p, err := s.Partition(t.Context(), id)
			return err == nil && p.Status == Complete
		})
	}
	stop()
	require.NoError(t, <-ran)
	for _, want := range []struct{ partition, item, data string }{
		{"half", "retried", "did 3"},
		{"half", "last", "did 4"},
		{"half", "new", "did 6"},
		{"untouched", before[0].ID, "did 5"},
		{"untouched", "b", "did \x00\xff"},
	} {
		item, err := s.Item(t.Context(), want.partition, want.item)
		require.NoError(t, err)
		require.Equal(t, want.data, string(item.Data))
	}
}

// A database of an earlier build whose watcher was killed while it had both partitions: this build takes the leases over, and
// finishes what is left.
func TestDatabaseOfAKilledWatcher(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "feed.db")
			unpack(t, filepath.Join("testdata", "store-killed.db.gz"), path)
			return "sqlite:" + path
		},
		"postgres": func(t *testing.T) string {
			dsn := backends[1].fresh(t)
			statements, err := os.ReadFile(filepath.Join("testdata", "store-postgres.sql"))
			require.NoError(t, err)
			require.NoError(t, openStore(t, dsn, NoMigrate()).sql.DB.Exec(string(statements)).Error)
			return dsn
		},
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, store(t))
			before, err := s.Items(t.Context(), Query{Partition: "half"})
			require.NoError(t, err)
			require.Equal(t, []Status{Complete, Failed, Available, Available}, sqlstore.Map(before, func(it *Item) Status { return it.Status }))
			require.Equal(t, "busy", before[2].History()[0].Error[len(before[2].History()[0].Error)-4:])
			require.NoError(t, s.Retry(t.Context(), "half"))
			require.NoError(t, s.Seal(t.Context(), "half"))
			w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
				return Response{Done: true, Data: append([]byte("did "), it.Data...)}, nil
			}), AutoClose(), Limits(Limit{Concurrency: 1}))
			awaitPartition(t, s, "half", Complete)
			awaitPartition(t, s, "untouched", Complete)
			require.NoError(t, w.stop(t))
			after, err := s.Items(t.Context(), Query{})
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"1", "did 2", "did 3", "did 4", "did 5"}, sqlstore.Map(after, func(it *Item) string { return string(it.Data) }))
			half, err := s.Partition(t.Context(), "half")
			require.NoError(t, err)
			require.Greater(t, half.Epoch, int64(1), "it was leased again")
		})
	}
}

func unpack(t *testing.T, from, to string) {
	f, err := os.Open(from)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, data, 0o600))
}

// TestNothingToMigrate: a Store opens while another program holds the lock of migrations, if there is nothing to migrate.
func TestNothingToMigrate(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	s := openStore(t, dsn)
	require.NoError(t, s.sql.DB.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, tx.Exec("SELECT pg_advisory_xact_lock(?)", 0x6a657470756c6c).Error)
		openStore(t, dsn)
		return nil
	}))
}

// TestMigrationBehindATransaction: while a long transaction uses a table, a migration fails soon. If it waited, all other programs would wait behind
// it.
func TestMigrationBehindATransaction(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	s := openStore(t, dsn)
	for _, statement := range []string{"ALTER TABLE items DROP COLUMN crashes", "DELETE FROM feed_migrations WHERE id = '0005'"} {
		require.NoError(t, s.sql.DB.Exec(statement).Error)
	}
	require.NoError(t, s.sql.DB.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, tx.Exec("LOCK TABLE items IN ACCESS SHARE MODE").Error)
		_, err := Open(t.Context(), dsn)
		require.True(t, sqlstore.Locked(err), "%v", err)
		require.ErrorContains(t, err, "migration 0005")
		return nil
	}))
	openStore(t, dsn)
}

// TestLaterTables: a program does not work on tables of a later version.
func TestLaterTables(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		require.NoError(t, s.sql.DB.Exec("INSERT INTO feed_migrations (id) VALUES ('9999')").Error)
		require.ErrorContains(t, s.Migrate(t.Context()), "migration 9999")
		for _, opts := range [][]StoreOption{nil, {NoMigrate()}} {
			_, err := NewStore(t.Context(), s.sql.DB, opts...)
			require.ErrorContains(t, err, "migration 9999")
		}
	})
}
