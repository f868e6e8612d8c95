package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

const sqlserverGolden = "testdata/sqlserver.sql"

// recorder is a database that keeps the statements and has one partition, leased by "me" with epoch 1.
type recorder struct {
	mu         sync.Mutex
	statements []string
}

func (r *recorder) note(query string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements = append(r.statements, strings.Join(strings.Fields(query), " ")+";")
}

func (r *recorder) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r *recorder) Driver() driver.Driver                        { return nil }
func (r *recorder) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (r *recorder) Close() error                                 { return nil }
func (r *recorder) Begin() (driver.Tx, error)                    { return r, nil }
func (r *recorder) Commit() error                                { return nil }
func (r *recorder) Rollback() error                              { return nil }

func (r *recorder) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	r.note(query)
	return driver.RowsAffected(1), nil
}

func (r *recorder) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	r.note(query)
	switch {
	case strings.HasPrefix(query, "SELECT COUNT(CASE"):
		return &recordedRow{columns: []string{"ready", "delayed", "gated", "since", "now"}, row: []driver.Value{int64(1), int64(0), int64(0), time.Now(), time.Now()}}, nil
	case strings.HasPrefix(query, "SELECT COUNT(*), COUNT(DISTINCT"):
		return &recordedRow{columns: []string{"n", "partitions"}, row: []driver.Value{int64(1), int64(1)}}, nil
	case strings.Contains(query, "MIN("), strings.HasPrefix(query, "SELECT SYSUTCDATETIME"):
		return &recordedRow{columns: []string{"t"}, row: []driver.Value{time.Now()}}, nil
	case strings.Contains(query, "COUNT(*) AS n") && strings.Contains(query, "claimant"):
		return &recordedRow{columns: []string{"owner", "n"}, row: []driver.Value{"other", int64(9)}}, nil
	case strings.Contains(query, `FROM "partitions"`), strings.Contains(query, "FROM partitions p"):
		return &recordedRow{
			columns: []string{"id", "gate", "status", "owner", "until", "epoch", "sealed", "version", "claimant"},
			row:     []driver.Value{"p", int64(0), "Available", "me", time.Now(), int64(1), true, int64(1), nil},
		}, nil
	}
	return &recordedRow{columns: []string{"seq"}}, nil
}

// recordedRow is one row or none.
type recordedRow struct {
	columns []string
	row     []driver.Value
}

func (r *recordedRow) Columns() []string { return r.columns }
func (r *recordedRow) Close() error      { return nil }

func (r *recordedRow) Next(dest []driver.Value) error {
	if r.row == nil {
		return io.EOF
	}
	copy(dest, r.row)
	r.row = nil
	return nil
}

// TestSQLServerStatements holds what SQL Server is sent to a golden file, for where there is no server to run it.
func TestSQLServerStatements(t *testing.T) {
	rec := &recorder{}
	pool := sql.OpenDB(rec)
	defer pool.Close()
	db, err := gorm.Open(sqlserver.New(sqlserver.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
	require.NoError(t, err)
	s, err := New(db)
	require.NoError(t, err)
	ctx, auto := t.Context(), Terms{Owner: "me", Length: time.Minute, AutoClose: true}
	var out strings.Builder
	gate := 1
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"acquire", func() { _, err = s.Acquire(ctx, auto, 10, nil) }},
		{"renew", func() { _, _, err = s.Renew(ctx, auto, []Lease{{"p", 1}}) }},
		{"release", func() { err = s.Release(ctx, auto, []Lease{{"p", 1}}) }},
		{"claim", func() { _, err = s.Claim(ctx, auto) }},
		{"soonest", func() { _, err = s.Soonest(ctx, auto) }},
		{"fetch", func() { _, err = s.Fetch(ctx, auto, []Want{{Lease{"p", 1}, 7, 10}}) }},
		{"save", func() {
			_, err = s.Save(ctx, auto, []Result{{Lease: Lease{"p", 1}, Item: "a", Version: 1, Status: Available, Data: []byte("x"), History: new("[]"), Delay: time.Second}})
		}},
		{"settle", func() { _, _, err = s.Settle(ctx, auto, Lease{"p", 1}) }},
		{"close", func() { err = s.ClosePartition(ctx, "p") }},
		{"advance", func() { err = s.Advance(ctx, "p", 1) }},
		{"retry", func() { _, err = s.Retry(ctx, "p", []string{"a"}) }},
		{"items", func() { _, err = s.Items(ctx, Query{Partition: "p", Gate: &gate, Status: Failed, Limit: 3}) }},
		{"counts", func() { _, err = s.Counts(ctx, "p") }},
		{"steps", func() { _, err = s.Steps(ctx, "p") }},
		{"backlog", func() { _, err = s.Backlog(ctx) }},
		{"create", func() { _, err = s.CreatePartition(ctx, Partition{ID: "p"}, []Item{{ID: "a"}}) }},
	} {
		rec.statements = nil
		step.do()
		require.NoError(t, err, step.name)
		out.WriteString("-- " + step.name + "\n" + strings.Join(rec.statements, "\n") + "\n\n")
	}
	if *updateGolden {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(sqlserverGolden, []byte(out.String()), 0o644))
		return
	}
	want, err := os.ReadFile(sqlserverGolden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String(), "if the change was meant: go test -run SQLServerStatements -update")
}

// mssqlError is one as SQL Server's driver has them.
type mssqlError int32

func (e mssqlError) Error() string         { return "mssql: refused" }
func (e mssqlError) SQLErrorNumber() int32 { return int32(e) }

func TestSQLServerErrors(t *testing.T) {
	require.True(t, transient(fmt.Errorf("save: %w", mssqlError(1205))), "the victim of a deadlock")
	require.False(t, transient(mssqlError(547)))
	require.True(t, Refused(mssqlError(547)), "a CHECK")
	require.False(t, Refused(mssqlError(1205)))
}

// TestSQLServerDelays: DATEADD takes an int, and a year has more milliseconds.
func TestSQLServerDelays(t *testing.T) {
	s := &conn{Dialect: dialects["sqlserver"]}
	at, err := s.later(nil, 365*24*time.Hour+7*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, []any{int64(7), int64(365 * 24 * 60 * 60)}, at.(clause.Expr).Vars)
}
