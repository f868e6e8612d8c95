// Package inbox tests package inbox with databases.
package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/inbox"
	"github.com/jetpull/jetpull/internal/pgtest"
	"github.com/jetpull/jetpull/jetpulltest"
)

// mysqlEnv names a database of MySQL or MariaDB, as the driver go-sql-driver/mysql does, whose tables the tests may drop.
const mysqlEnv = "INBOX_TEST_MYSQL"

// patience bounds every wait for something that has to happen.
const patience = 2 * time.Minute

var shared pgtest.Shared

// TestMain lets the test binary be a worker that is killed.
func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		var s workerSettings
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(2)
		}
		if err := work(s); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	shared.Stop()
	os.Exit(code)
}

// backend is a kind of database. Each call of fresh names an empty one.
type backend struct {
	driver string
	fresh  func(t *testing.T) (dsn string)
}

var backends = []backend{
	{"sqlite", func(t *testing.T) string {
		return "file:" + filepath.Join(t.TempDir(), "inbox.db") +
			"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)" // no test ends the machine
	}},
	{"pgx", func(t *testing.T) string {
		server, err := shared.Get(t.Context())
		if errors.Is(err, pgtest.ErrNone) {
			t.Skip(err)
		}
		require.NoError(t, err)
		dsn, err := server.Database(t.Context())
		require.NoError(t, err)
		return dsn
	}},
	{"mysql", func(t *testing.T) string {
		dsn := os.Getenv(mysqlEnv)
		if dsn == "" {
			t.Skip(mysqlEnv + " names no database")
		}
		db := open(t, "mysql", dsn)
		for _, table := range []string{"jetpull_inbox", "jetpull_inbox_floors", "effects"} {
			_, err := db.ExecContext(t.Context(), "DROP TABLE IF EXISTS "+table)
			require.NoError(t, err)
		}
		return dsn
	}},
}

// onEach runs a test on an empty database of each kind, with the table of the application.
func onEach(t *testing.T, test func(t *testing.T, b backend, dsn string)) {
	for _, b := range backends {
		t.Run(b.driver, func(t *testing.T) {
			dsn := b.fresh(t)
			db := open(t, b.driver, dsn)
			_, err := db.ExecContext(t.Context(), "CREATE TABLE effects (n bigint NOT NULL)")
			require.NoError(t, err)
			require.NoError(t, inbox.Migrate(t.Context(), db))
			test(t, b, dsn)
		})
	}
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func effects(t *testing.T, db *sql.DB) int { return number(t, db, "SELECT count(*) FROM effects") }

// effect is the application's part: a row for each call.
func effect(ctx context.Context, tx *sql.Tx, m *jetpull.Msg) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects (n) VALUES (%d)", int64(m.Sequence())))
	return err
}

// redelivered is a delivery of the same message as that of any other call.
func redelivered() *jetpull.Msg {
	return jetpulltest.NewMsg("s.a", nil, jetpulltest.Stored(time.Unix(1_700_000_000, 5)))
}

// behind is the DSN of a server at the address of a proxy.
func behind(t *testing.T, dsn, proxy string) string {
	t.Helper()
	server, err := url.Parse(dsn)
	require.NoError(t, err)
	_, server.Host, _ = strings.Cut(proxy, "://")
	return server.String()
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	err := check()
	for end := time.Now().Add(patience); err != nil; err = check() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		<-tick.C
	}
}
