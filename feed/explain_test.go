package feed

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// TestHotQueriesUseIndexes: with many completed items around, the scan and the fetch read the index of available ones, and
// no table of items from end to end.
func TestHotQueriesUseIndexes(t *testing.T) {
	t.Parallel()
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			s := openStore(t, b.fresh(t))
			lite := b.name == "sqlite"
			series := "generate_series(1, 5000) AS g(n)"
			if lite {
				series = "(WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < 5000) SELECT n FROM g) AS g"
			}
			require.NoError(t, s.db.Exec(`INSERT INTO items (partition_id, id, gate, status, data, version)
				SELECT 'p', 'i' || n, 0, CASE WHEN n % 100 = 0 THEN 'Available' ELSE 'Complete' END, NULL, 1 FROM `+series).Error)
			require.NoError(t, s.db.Exec("INSERT INTO partitions (id, gate, status, version) SELECT 'q' || n, 0, 'Available', 1 FROM "+series+" WHERE n < 500").Error)
			create(t, s, Partition{ID: "p"})
			require.NoError(t, s.db.Exec("ANALYZE").Error)
			explain := "EXPLAIN "
			if lite {
				explain = "EXPLAIN QUERY PLAN "
			}
			for name, query := range map[string]string{
				"scan": s.db.ToSQL(func(tx *gorm.DB) *gorm.DB {
					return tx.Table("partitions p").Select("p.*").Where("p.status = 'Available'").Where(s.dialect.free(), "me").
						Where(s.dialect.work(theTerms)).Order("p.until").Limit(10).Find(&[]partitionRow{})
				}),
				"fetch": s.db.ToSQL(func(tx *gorm.DB) *gorm.DB {
					return tx.Table("items i").Select(itemColumns).Where("i.partition_id = ? AND i.gate = 0 AND i.seq > ? AND "+s.dialect.dueItems(), "p", 0).
						Order("i.seq").Limit(10).Find(&[]itemRow{})
				}),
			} {
				plan := planText(t, s, explain+query)
				require.Contains(t, plan, "items_available", name)
				for _, bad := range []string{"Seq Scan on items", "SCAN i\n", "SCAN items"} {
					require.NotContains(t, plan, bad, name)
				}
			}
		})
	}
}

// planText is the lines of a plan, of which SQLite has the text in its last column.
func planText(t *testing.T, s *Store, explain string) string {
	t.Helper()
	var b strings.Builder
	rows, err := s.db.Raw(explain).Rows()
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
