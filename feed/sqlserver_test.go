package feed

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"flag"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nuid"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

const sqlserverGolden = "testdata/sqlserver.sql"

// silentServer is a database that keeps the statements and has one partition, leased by "me" with epoch 1.
type silentServer struct {
	mu         sync.Mutex
	statements []string
	most       int // parameters of a statement
}

func (r *silentServer) note(query string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements = append(r.statements, strings.Join(strings.Fields(query), " ")+";")
}

func (r *silentServer) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r *silentServer) Driver() driver.Driver                        { return nil }
func (r *silentServer) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (r *silentServer) Close() error                                 { return nil }
func (r *silentServer) Begin() (driver.Tx, error)                    { return r, nil }
func (r *silentServer) Commit() error                                { return nil }
func (r *silentServer) Rollback() error                              { return nil }

func (r *silentServer) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	r.note(query)
	r.most = max(r.most, len(args))
	return driver.RowsAffected(1), nil
}

func (r *silentServer) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r.note(query)
	r.most = max(r.most, len(args))
	switch {
	case strings.HasPrefix(query, "SELECT COUNT(CASE"):
		return &recordedRow{
			columns: []string{"ready", "delayed", "gated", "passed", "since", "now"},
			row:     []driver.Value{int64(1), int64(0), int64(0), int64(0), time.Now(), time.Now()},
		}, nil
	case strings.HasPrefix(query, "SELECT COUNT(*), COUNT(DISTINCT"):
		return &recordedRow{columns: []string{"n", "partitions"}, row: []driver.Value{int64(1), int64(1)}}, nil
	case strings.HasPrefix(query, "SELECT CASE WHEN EXISTS"):
		return &recordedRow{columns: []string{"due", "available", "failed"}, row: []driver.Value{int64(0), int64(0), int64(0)}}, nil
	case strings.Contains(query, "MIN(gate)"):
		return &recordedRow{columns: []string{"gate"}, row: []driver.Value{nil}}, nil
	case strings.Contains(query, "feed_limits"):
		return &recordedRow{columns: []string{"state", "now"}, row: []driver.Value{"", time.Now()}}, nil
	case query == "SELECT SYSUTCDATETIME()":
		return &recordedRow{columns: []string{"now"}, row: []driver.Value{time.Now()}}, nil
	case strings.HasPrefix(query, "SELECT SYSUTCDATETIME"):
		return &recordedRow{columns: []string{"now", "ends", "due", "claims"}, row: []driver.Value{time.Now(), time.Now(), nil, int64(0)}}, nil
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

func (r *silentServer) store(t *testing.T) *Store {
	t.Helper()
	pool := sql.OpenDB(r)
	t.Cleanup(func() { pool.Close() })
	db, err := gorm.Open(sqlserver.New(sqlserver.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
	require.NoError(t, err)
	s, err := NewStore(t.Context(), db, NoMigrate())
	require.NoError(t, err)
	return s
}

// TestSQLServerParameters: SQL Server takes 2,100 parameters in a statement.
func TestSQLServerParameters(t *testing.T) {
	rec := &silentServer{}
	s := rec.store(t)
	later := time.Now().Add(time.Hour)
	items := make([]Item, 1000)
	for i := range items {
		items[i].NotBefore = later
	}
	_, _ = s.CreatePartition(t.Context(), Partition{ID: "p"}, items...) // the sequence numbers are missing
	leases := sqlstore.Map(make([]struct{}, 2000), func(*struct{}) sqlstore.Lease { return leaseOf(nuid.Next(), 1) })
	_, err := s.sql.Renew(t.Context(), theTerms, leases)
	require.NoError(t, err)
	require.NoError(t, s.sql.Release(t.Context(), theTerms, takenOf(leases...)))
	_, err = s.sql.Save(t.Context(), theTerms, sqlstore.Map(leases,
		func(l *sqlstore.Lease) sqlstore.Result { return sqlstore.Result{Lease: *l, Item: "a"} }))
	require.NoError(t, err)
	require.Greater(t, rec.most, 1900)
	require.LessOrEqual(t, rec.most, 2100)
}

// TestSQLServerStatements holds what SQL Server is sent to a golden file, for where there is no server to run it.
func TestSQLServerStatements(t *testing.T) {
	var err error
	rec := &silentServer{}
	s := rec.store(t)
	ctx, auto := t.Context(), sqlstore.Terms{Owner: "me", Length: time.Minute, AutoClose: true}
	var out strings.Builder
	gate := 1
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"acquire", func() { _, err = s.sql.Acquire(ctx, auto, 10, nil) }},
		{"renew", func() { _, err = s.sql.Renew(ctx, auto, []sqlstore.Lease{leaseOf("p", 1)}) }},
		{"release", func() { err = s.sql.Release(ctx, auto, takenOf(leaseOf("p", 1))) }},
		{"claim", func() { _, err = s.sql.Claim(ctx, auto) }},
		{"soonest", func() { _, err = s.sql.Soonest(ctx, auto) }},
		{"fetch", func() {
			_, err = s.sql.Fetch(ctx, auto, []sqlstore.Want{{Lease: leaseOf("p", 1), After: 7, Limit: 10, Bytes: 10}})
		}},
		{"save", func() {
			_, err = s.sql.Save(ctx, auto, []sqlstore.Result{{
				Lease: leaseOf("p", 1), Item: "a", Version: 1, Status: sqlstore.Available, Data: []byte("x"),
				History: new("[]"), Delay: time.Second,
			}})
		}},
		{"settle", func() { _, _, err = s.sql.Settle(ctx, auto, leaseOf("p", 1)) }},
		{"grant", func() {
			_, err = s.sql.Grant(ctx, auto, []sqlstore.Ask{{Limit: sqlstore.Limit{Gate: 1, Concurrency: 2}, Demand: 1}})
		}},
		{"close", func() { err = s.ClosePartition(ctx, "p") }},
		{"advance", func() { err = s.Advance(ctx, "p", 1) }},
		{"retry", func() { _, err = s.RetryFailed(ctx, "p", "a") }},
		{"items", func() { _, err = s.Items(ctx, Query{Partition: "p", Gate: &gate, Status: Failed, Limit: 3}) }},
		{"counts", func() { _, err = s.Counts(ctx, "p") }},
		{"steps", func() { _, err = s.Steps(ctx, "p") }},
		{"backlog", func() { _, err = s.Backlog(ctx) }},
		{"create", func() { _, err = s.CreatePartition(ctx, Partition{ID: "p"}, Item{ID: "a"}) }},
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
