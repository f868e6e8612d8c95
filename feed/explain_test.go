package feed

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// asked is a statement that a Store sent.
type asked struct {
	sql  string
	args []any
}

// recorder is a pool of connections that remembers the queries outside of transactions.
type recorder struct {
	*sql.DB
	queries []asked
}

// QueryContext implements gorm.ConnPool.
func (r *recorder) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	r.queries = append(r.queries, asked{query, args})
	return r.DB.QueryContext(ctx, query, args...)
}

// GetDBConn implements gorm.GetDBConnector.
func (r *recorder) GetDBConn() (*sql.DB, error) { return r.DB, nil }

// record has the queries of a Store remembered from now on.
func record(t *testing.T, s *Store) *recorder {
	t.Helper()
	pool, err := s.sql.DB.DB()
	require.NoError(t, err)
	r := &recorder{DB: pool}
	s.sql.DB.Statement.ConnPool = r
	return r
}

// shape is what a watcher has to do.
type shape struct {
	name              string
	partitions, items int  // items of each
	complete          bool // most of them
}

// shapes have so many items each.
func shapes(items int) []shape {
	return []shape{
		{"one partition, nothing done", 1, items, false},
		{"one partition", 1, items, true},
		{"two partitions", 2, items / 2, true},
		{"many partitions", items / 300, 300, true},
	}
}

// numbers is a source of rows n, from 1.
func numbers(backend string, most int) string {
	if backend == "sqlite" {
		return fmt.Sprintf("(WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < %d) SELECT n FROM g) AS g", most)
	}
	return fmt.Sprintf("generate_series(1, %d) AS g(n)", most)
}

// fillShape inserts items into partitions in turn, as programs do that work at the same time. Two thirds of the items may be
// Complete, also between the others.
func fillShape(t *testing.T, s *Store, backend string, partitions, items int, complete bool) {
	t.Helper()
	statements := []string{
		"INSERT INTO partitions (id, gate, status, version) SELECT 'p' || n, 0, 'Available', 1 FROM " + numbers(backend, partitions),
		fmt.Sprintf("INSERT INTO items (partition_id, id, gate, status, data, version) SELECT 'p' || (1 + n %% %d), 'i' || n, 0, 'Available', NULL, 1 "+
			"FROM %s",
			partitions, numbers(backend, partitions*items)),
	}
	if complete {
		// By another statement, as a watcher does, so that the tables and indexes have the rows of before, too.
		statements = append(statements, fmt.Sprintf("UPDATE items SET status = 'Complete', version = 2 WHERE seq <= %d OR seq %% 3 = 0",
			partitions*items/2))
	}
	if backend != "sqlite" { // or the statistics would be of some moment in between
		off := []string{"ALTER TABLE items SET (autovacuum_enabled = off)", "ALTER TABLE partitions SET (autovacuum_enabled = off)"}
		statements = append(off, statements...)
	}
	for _, statement := range statements {
		require.NoError(t, s.sql.DB.Exec(statement).Error)
	}
	if backend != "sqlite" {
		awaitOlderTransactions(t, s)
	}
}

// awaitOlderTransactions waits until the transactions that run now have ended, also those of tests on other databases of the server. Until then
// a scan reads the index entries of rows that were changed again and again.
func awaitOlderTransactions(t *testing.T, s *Store) {
	t.Helper()
	var now string
	require.NoError(t, s.sql.DB.Raw("SELECT pg_current_xact_id()::text").Scan(&now).Error)
	require.Eventually(t, func() (ended bool) {
		err := s.sql.DB.Raw("SELECT pg_snapshot_xmin(pg_current_snapshot()) > CAST(? AS text)::xid8", now).Scan(&ended).Error
		return err == nil && ended
	}, time.Minute, 10*time.Millisecond)
}

// onShapes runs a test on databases of these shapes, without the database's statistics and then with them.
func onShapes(t *testing.T, b backend, all []shape, test func(t *testing.T, dsn string, partitions int)) {
	for _, shape := range all {
		t.Run(shape.name, func(t *testing.T) {
			dsn := b.fresh(t)
			s := openStore(t, dsn)
			fillShape(t, s, b.name, shape.partitions, shape.items, shape.complete)
			t.Run("not analyzed", func(t *testing.T) { test(t, dsn, shape.partitions) })
			require.NoError(t, s.sql.DB.Exec("ANALYZE").Error)
			t.Run("analyzed", func(t *testing.T) { test(t, dsn, shape.partitions) })
		})
	}
}

// fetchSome leases partitions, fetches items of them as a watcher does in the middle of a pass, and returns their
// number and the queries for them. The leases end with the test.
func fetchSome(t *testing.T, s *Store, partitions, limit int) (items int, r *recorder) {
	t.Helper()
	n := min(partitions, engine.FetchMost)
	taken, err := s.sql.Acquire(t.Context(), theTerms, n, nil)
	require.NoError(t, err)
	leases := leasesOf(taken)
	require.Len(t, leases, n)
	t.Cleanup(func() { require.NoError(t, s.sql.Release(context.WithoutCancel(t.Context()), theTerms, taken)) })
	wants := make([]sqlstore.Want, 0, n)
	for _, l := range leases {
		wants = append(wants, sqlstore.Want{Lease: l, After: 100, Limit: limit, Bytes: 1 << 20})
	}
	r = record(t, s)
	rows, err := s.sql.Fetch(t.Context(), theTerms, wants)
	require.NoError(t, err)
	require.Len(t, rows, limit*len(wants))
	return len(rows), r
}

// TestFetchReadsWhatItReturns: on PostgreSQL a fetch reads about as many pages as it returns items, however many items there are.
func TestFetchReadsWhatItReturns(t *testing.T) {
	t.Parallel()
	const limit = 64
	onShapes(t, backends[1], shapes(30_000), func(t *testing.T, dsn string, partitions int) {
		for driver, prefix := range map[string]string{"pgx": "", "another driver": unknownPrefix} {
			t.Run(driver, func(t *testing.T) {
				items, r := fetchSome(t, openStore(t, prefix+dsn), partitions, limit)
				// Two pages for each item, and for each partition the ways down the indexes.
				require.LessOrEqual(t, buffers(t, r), 2*items+20*items/limit, "%s", r.queries[0].sql)
			})
		}
	})
}

// TestPlansAreKept: PostgreSQL plans the statements that fetch and save once for a connection, and not for each call. With many partitions, the
// plan of a fetch compares none with all others.
func TestPlansAreKept(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 1000} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			t.Parallel()
			plansAreKept(t, partitions)
		})
	}
}

func plansAreKept(t *testing.T, partitions int) {
	const calls = 10
	s := openStore(t, backends[1].fresh(t))
	fillShape(t, s, backends[1].name, partitions, 1, false)
	r := record(t, s)
	r.SetMaxOpenConns(1)
	taken, err := s.sql.Acquire(t.Context(), theTerms, engine.FetchMost, nil)
	require.NoError(t, err)
	wants := sqlstore.Map(leasesOf(taken), func(l *sqlstore.Lease) sqlstore.Want { return sqlstore.Want{Lease: *l, Limit: 2, Bytes: 1 << 20} })
	results := []sqlstore.Result{{Lease: taken[0].Lease, Item: "none", Version: 1, Status: sqlstore.Complete}}
	r.queries = nil
	for range calls {
		rows, err := s.sql.Fetch(t.Context(), theTerms, wants)
		require.NoError(t, err)
		require.Len(t, rows, len(wants))
		_, err = s.sql.Save(t.Context(), theTerms, results)
		require.NoError(t, err)
	}
	var kept []struct {
		Statement string
		Custom    int
	}
	require.NoError(t, s.sql.DB.Raw("SELECT statement, custom_plans AS custom FROM pg_prepared_statements "+
		"WHERE custom_plans + generic_plans = ? AND statement LIKE '%unnest%'", calls).Find(&kept).Error)
	require.Len(t, kept, 2)
	for _, k := range kept {
		require.LessOrEqual(t, k.Custom, 5, "PostgreSQL first plans five calls:\n%s", k.Statement)
	}
	var plan []string
	for _, statement := range []string{"SET plan_cache_mode = force_generic_plan", "PREPARE kept AS " + r.queries[0].sql} {
		require.NoError(t, s.sql.DB.Exec(statement).Error)
	}
	require.NoError(t, s.sql.DB.Raw("EXPLAIN EXECUTE kept(NULL, NULL, NULL, NULL, NULL, NULL)").Scan(&plan).Error)
	require.NotContains(t, strings.Join(plan, "\n"), "Join Filter")
}

// buffers is how many pages PostgreSQL reads for the queries.
func buffers(t *testing.T, r *recorder) (pages int) {
	t.Helper()
	for _, q := range r.queries {
		var text string
		require.NoError(t, r.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+q.sql, q.args...).Scan(&text))
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(text), &plans))
		pages += plans[0].Plan.Hit + plans[0].Plan.Read
	}
	t.Logf("%d pages", pages)
	return pages
}

// TestSQLiteReadsByIndex: on SQLite a fetch goes by the index of available items, and sorts nothing. SQLite plans by averages: few items do.
func TestSQLiteReadsByIndex(t *testing.T) {
	t.Parallel()
	onShapes(t, backends[0], shapes(3000), func(t *testing.T, dsn string, partitions int) {
		_, r := fetchSome(t, openStore(t, dsn), partitions, 64)
		plan := planText(t, r)
		require.Contains(t, plan, "SEARCH i USING INDEX items_available (partition_id=? AND gate=? AND seq>?)", plan)
		require.NotContains(t, plan, "TEMP B-TREE", plan)
	})
}

// TestScanUsesIndexes: with many completed items around, the look for partitions with work reads the index of available items, and no
// table of items from end to end.
func TestScanUsesIndexes(t *testing.T) {
	t.Parallel()
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			s := openStore(t, b.fresh(t))
			for _, statement := range []string{
				`INSERT INTO items (partition_id, id, gate, status, data, version)
					SELECT 'p', 'i' || n, 0, CASE WHEN n % 100 = 0 THEN 'Available' ELSE 'Complete' END, NULL, 1 FROM ` + numbers(b.name, 5000),
				"INSERT INTO partitions (id, gate, status, version) SELECT 'q' || n, 0, 'Available', 1 FROM " + numbers(b.name, 500),
				"INSERT INTO partitions (id, gate, status, version) VALUES ('p', 0, 'Available', 1)",
				"ANALYZE",
			} {
				require.NoError(t, s.sql.DB.Exec(statement).Error)
			}
			r := record(t, s)
			n, err := s.sql.Waiting(t.Context(), theTerms, 1000)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			plan := planText(t, r)
			require.Contains(t, plan, "items_available", plan)
			for _, bad := range []string{"Seq Scan on items", "SCAN i\n", "SCAN items"} {
				require.NotContains(t, plan, bad, plan)
			}
		})
	}
}

// planText is the lines of the plan of the first query, of which SQLite has the text in its last column.
func planText(t *testing.T, r *recorder) string {
	t.Helper()
	explain := "EXPLAIN "
	if strings.Contains(fmt.Sprintf("%T", r.Driver()), "sqlite") {
		explain = "EXPLAIN QUERY PLAN "
	}
	var b strings.Builder
	rows, err := r.DB.QueryContext(t.Context(), explain+r.queries[0].sql, r.queries[0].args...)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		var line string
		dest := make([]any, len(columns))
		for i := range dest {
			dest[i] = new(any)
		}
		dest[len(dest)-1] = &line
		require.NoError(t, rows.Scan(dest...))
		b.WriteString(line + "\n")
	}
	require.NoError(t, rows.Err())
	return b.String()
}
