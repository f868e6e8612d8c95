package feed

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/pgtest"
)

// The settings for PgBouncer on docs/deploy.md, in its own configuration and in the DSN.
const (
	poolerIgnores = "ignore_startup_parameters = idle_in_transaction_session_timeout,jit"
	poolerQuery   = "&default_query_exec_mode=exec&idle_in_transaction_session_timeout=10s&jit=off"
)

// pooled starts PgBouncer in transaction mode in front of a database, with which it has one session, and returns the DSN. Without PgBouncer the test
// is skipped, and fails with CI=true.
func pooled(t *testing.T, dsn string, settings ...string) string {
	t.Helper()
	b, err := pgtest.StartBouncer(t.Context(), dsn, settings...)
	if errors.Is(err, pgtest.ErrNoBouncer) {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	return b.DSN
}

// TestPooler: all works through PgBouncer in transaction mode, with the settings that the manual names.
func TestPooler(t *testing.T) {
	t.Parallel()
	dsn := pooled(t, backends[1].fresh(t), poolerIgnores, "default_pool_size = 4")
	dsn += poolerQuery
	s, other := openStore(t, dsn), openStore(t, dsn)
	create(t, s, Partition{ID: "p"}, make([]Item, 20)...)
	require.NoError(t, s.Insert(t.Context(), "p", make([]Item, 20)...))
	kinds := begins(t, s, dsn)
	for kind, begin := range kinds {
		kept, dropped := begin(), begin()
		require.NoError(t, s.InsertTx(t.Context(), kept.tx, "p", Item{ID: kind}), kind)
		require.NoError(t, kept.commit())
		require.NoError(t, s.InsertTx(t.Context(), dropped.tx, "p", Item{ID: "dropped"}), kind)
		require.NoError(t, dropped.rollback())
	}
	all := 20 + 20 + len(kinds)
	watchers := []*running{startWatcher(t, s, finish), startWatcher(t, other, finish)}
	eventually(t, "all is complete", func() bool { return counts(t, s, "p")[0].Complete == all })
	create(t, other, Partition{ID: "late"}, Item{})
	eventually(t, "watchers find by polling what comes later", func() bool { return counts(t, s, "late")[0].Complete == 1 })
	stopAll(t, watchers)

	for _, id := range []string{"p", "late"} {
		require.NoError(t, s.ClosePartition(t.Context(), id))
	}
	pruned, err := s.Prune(t.Context(), 0, nil)
	require.NoError(t, err)
	require.Equal(t, Pruned{Partitions: 2, Items: all + 1}, pruned)
}

// TestLeaseIsLostThroughAPooler: a watcher whose lease another one has taken stores nothing.
func TestLeaseIsLostThroughAPooler(t *testing.T) {
	t.Parallel()
	dsn := pooled(t, backends[1].fresh(t), poolerIgnores)
	s := openStore(t, dsn+poolerQuery)
	create(t, s, Partition{ID: "p"}, Item{ID: "a"})
	begun := make(chan struct{})
	w := startWatcher(t, s, ProcessorFunc(func(ctx context.Context, _ Item) (Response, error) {
		close(begun)
		<-ctx.Done()
		return done()
	}), Lease(300*time.Millisecond))
	<-begun
	thief := termsOf("thief")
	eventually(t, "the lease is taken", func() bool {
		require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET until = ?", time.Now().Add(-time.Hour)).Error)
		taken, err := s.sql.Acquire(t.Context(), thief, 1, nil)
		require.NoError(t, err)
		return len(taken) == 1
	})
	require.NoError(t, w.stop(t))
	require.Equal(t, 1, counts(t, s, "p")[0].Available, "the watcher has lost its lease before its handler ended")
}

// TestStoppedInATransactionBehindAPooler: the settings of the role end a transaction that a process was stopped in.
func TestStoppedInATransactionBehindAPooler(t *testing.T) {
	t.Parallel()
	direct := backends[1].fresh(t)
	conn, err := pgx.Connect(t.Context(), direct)
	require.NoError(t, err)
	var role string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT format('ALTER ROLE %I IN DATABASE %I ', current_user, current_database())").Scan(&role))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := conn.Exec(ctx, role+"RESET ALL")
		require.NoError(t, errors.Join(err, conn.Close(ctx)))
	})
	_, err = conn.Exec(t.Context(), role+"SET idle_in_transaction_session_timeout = '500ms'")
	require.NoError(t, err)
	s := openStore(t, pooled(t, direct, poolerIgnores, "default_pool_size = 4")+poolerQuery)
	create(t, s, Partition{ID: "p"}, Item{})
	stopped := s.sql.DB.Begin()
	require.NoError(t, stopped.Exec("SELECT 1 FROM partitions WHERE id = 'p' FOR UPDATE").Error)
	w := startWatcher(t, s, finish)
	eventually(t, "its partition is processed", func() bool { return counts(t, s, "p")[0].Complete == 1 })
	require.NoError(t, w.stop(t))
	require.Error(t, stopped.Commit().Error)
}

// TestPoolerWithAnotherSetting: the errors of the manual.
func TestPoolerWithAnotherSetting(t *testing.T) {
	t.Parallel()
	dsn := pooled(t, backends[1].fresh(t), poolerIgnores)
	var failures error
	for range 2 { // the second finds the statements of the first in its session
		s, err := Open(t.Context(), dsn+strings.Replace(poolerQuery, "&default_query_exec_mode=exec", "", 1))
		if err == nil {
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			_, err = s.Partitions(t.Context(), Query{})
		}
		failures = errors.Join(failures, err)
	}
	require.ErrorContains(t, failures, "prepared statement")
	require.ErrorContains(t, failures, "already exists (SQLSTATE 42P05)")

	dsn = pooled(t, backends[1].fresh(t))
	_, err := Open(t.Context(), dsn+poolerQuery)
	require.ErrorContains(t, err, "unsupported startup parameter")

	// Another program gets the session with what the feed has set there.
	for query, want := range map[string]string{"&default_query_exec_mode=exec": "10s", poolerQuery: "0"} {
		dsn := pooled(t, backends[1].fresh(t), poolerIgnores)
		openStore(t, dsn+query)
		require.Equal(t, want, shown(t, dsn, "idle_in_transaction_session_timeout"))
	}
}

// shown is a setting of a session.
func shown(t *testing.T, dsn, setting string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW "+setting, pgx.QueryExecModeExec).Scan(&value))
	return value
}
