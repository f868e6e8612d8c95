package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
)

// fake is a database that answers queries for its version, and refuses all other requests.
type fake map[string]string

var errRefused = errors.New("refused")

func (f fake) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f fake) Driver() driver.Driver                        { return nil }
func (f fake) Begin() (driver.Tx, error)                    { return nil, errRefused }
func (f fake) Close() error                                 { return nil }
func (f fake) Prepare(query string) (driver.Stmt, error) {
	if answer, ok := f[query]; ok {
		return &fakeRow{answer: answer}, nil
	}
	return nil, errRefused
}

type fakeRow struct {
	answer string
	read   bool
}

func (r *fakeRow) Close() error                               { return nil }
func (r *fakeRow) NumInput() int                              { return 0 }
func (r *fakeRow) Exec([]driver.Value) (driver.Result, error) { return nil, errRefused }
func (r *fakeRow) Query([]driver.Value) (driver.Rows, error)  { return r, nil }
func (r *fakeRow) Columns() []string                          { return []string{"version"} }
func (r *fakeRow) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, dest[0] = true, r.answer
	return nil
}

func TestDialectOf(t *testing.T) {
	const version, lite = "SELECT version()", "SELECT sqlite_version()"
	for name, tt := range map[string]struct {
		db   fake
		want *dialect
		err  string
	}{
		"PostgreSQL":   {fake{version: "PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64"}, &postgres, ""},
		"MySQL":        {fake{version: "8.4.6"}, &mysql, ""},
		"MariaDB":      {fake{version: "10.11.14-MariaDB-0+deb12u2"}, &mysql, ""},
		"SQLite":       {fake{lite: "3.53.0"}, &sqlite, ""},
		"another":      {fake{version: "CockroachDB CCL v25.3.1"}, nil, `"CockroachDB CCL v25.3.1"`},
		"no text":      {fake{version: ""}, nil, `""`},
		"no answer":    {fake{}, nil, "refused"},
		"and SQLite's": {fake{version: "DuckDB", lite: "3"}, nil, `"DuckDB"`},
	} {
		d, err := dialectOf(t.Context(), sql.OpenDB(tt.db))
		require.Same(t, tt.want, d, name)
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err, name)
		}
	}
}

// The databases get these statements.
func TestStatements(t *testing.T) {
	const row = "t (a, b) VALUES (?, ?)"
	require.Equal(t, "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT DO NOTHING", postgres.bind(postgres.insert(row)))
	require.Equal(t, "INSERT INTO t (a, b) VALUES (?, ?) ON CONFLICT DO NOTHING", sqlite.bind(sqlite.insert(row)))
	require.Equal(t, "INSERT IGNORE INTO t (a, b) VALUES (?, ?)", mysql.bind(mysql.insert(row)))
}

// A database that does not answer is asked again by the next message.
func TestUnknownDatabaseIsAskedAgain(t *testing.T) {
	db := fake{}
	h := Handler(sql.OpenDB(db), func(context.Context, *sql.Tx, *jetpull.Msg) error { return nil })
	require.ErrorContains(t, h(t.Context(), jetpulltest.NewMsg("a", nil)), "for its version")
	db["SELECT version()"] = "8.4.6"
	err := h(t.Context(), jetpulltest.NewMsg("a", nil))
	require.ErrorIs(t, err, errRefused)
	require.True(t, strings.HasPrefix(err.Error(), "inbox: begin a transaction"), err)
}

func TestNextFloor(t *testing.T) {
	const keep = time.Minute
	created, start := time.Unix(1_000, 0), time.Unix(2_000, 0)
	at := func(created time.Time, floor uint64, after time.Duration) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Created: created, AckFloor: jetstream.SequenceInfo{Stream: floor}, TimeStamp: start.Add(after)}
	}
	f := floor{}.next(at(created, 10, 0), keep)
	require.Equal(t, floor{created.UnixNano(), 10, start.UnixNano(), 0}, f, "the first look")
	require.Equal(t, f, f.next(at(created, 50, keep-1), keep), "it is too early")
	require.Equal(t, f, f.next(at(created, 50, -time.Hour), keep), "the server's clock was set back")
	f = f.next(at(created, 50, keep), keep)
	require.Equal(t, floor{created.UnixNano(), 50, start.Add(keep).UnixNano(), 10}, f)
	back := floor{created.UnixNano(), 49, start.Add(time.Hour).UnixNano(), 10}
	require.Equal(t, back, f.next(at(created, 49, time.Hour), keep), "set back: no row more")
	require.Equal(t, floor{created.UnixNano(), 5, start.Add(time.Hour).UnixNano(), 5}, f.next(at(created, 5, time.Hour), keep), "set back further")
	other := created.Add(1)
	require.Equal(t, floor{other.UnixNano(), 90, start.Add(time.Hour).UnixNano(), 10}, f.next(at(other, 90, time.Hour), keep), "another consumer")
}

func TestHandlerRefuses(t *testing.T) {
	require.Nil(t, Handler(nil, func(context.Context, *sql.Tx, *jetpull.Msg) error { return nil }))
	require.Nil(t, Handler(sql.OpenDB(fake{}), nil, nil))
	require.Nil(t, BatchHandler(nil, func(context.Context, *sql.Tx, []*jetpull.Msg) error { return nil }))
	require.Nil(t, BatchHandler(sql.OpenDB(fake{}), nil, nil))
	require.ErrorContains(t, Migrate(t.Context(), nil), "nil *sql.DB")
	require.ErrorContains(t, Migrate(t.Context(), sql.OpenDB(fake{})), "for its version")
}
