package feed

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// asked is a statement that a Store sent.
type asked struct {
	sql  string
	args []any
}

// TestHotQueriesUseIndexes: with many completed items around, the scan and the fetch read the index of available ones, and
// no table of items from end to end.
func TestHotQueriesUseIndexes(t *testing.T) {
	t.Parallel()
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			s := openStore(t, b.fresh(t))
			explain, series := "EXPLAIN ", "generate_series(1, 5000) AS g(n)"
			if b.name == "sqlite" {
				explain = "EXPLAIN QUERY PLAN "
				series = "(WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < 5000) SELECT n FROM g) AS g"
			}
			require.NoError(t, s.sql.DB.Exec(`INSERT INTO items (partition_id, id, gate, status, data, version)
				SELECT 'p', 'i' || n, 0, CASE WHEN n % 100 = 0 THEN 'Available' ELSE 'Complete' END, NULL, 1 FROM `+series).Error)
			require.NoError(t, s.sql.DB.Exec("INSERT INTO partitions (id, gate, status, version) SELECT 'q' || n, 0, 'Available', 1 FROM "+series+" WHERE n < 500").Error)
			create(t, s, Partition{ID: "p"})
			require.NoError(t, s.sql.DB.Exec("ANALYZE").Error)
			var last asked
			note := func(tx *gorm.DB) { last = asked{tx.Statement.SQL.String(), tx.Statement.Vars} }
			require.NoError(t, s.sql.DB.Callback().Query().After("gorm:query").Register("test:asked", note))
			require.NoError(t, s.sql.DB.Callback().Row().After("gorm:row").Register("test:asked", note))
			l := leaseOne(t, s, theTerms)
			scan := last
			require.Len(t, fetchAll(t, s, theTerms, l), 50)
			for name, q := range map[string]asked{"scan": scan, "fetch": last} {
				plan := planText(t, s, explain+q.sql, q.args)
				require.Contains(t, plan, "items_available", name)
				for _, bad := range []string{"Seq Scan on items", "SCAN i\n", "SCAN items"} {
					require.NotContains(t, plan, bad, name)
				}
			}
		})
	}
}

// planText is the lines of a plan, of which SQLite has the text in its last column.
func planText(t *testing.T, s *Store, explain string, args []any) string {
	t.Helper()
	var b strings.Builder
	rows, err := s.sql.DB.Statement.ConnPool.QueryContext(t.Context(), explain, args...)
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
