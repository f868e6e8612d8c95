package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orders.db")
	for _, when := range []string{"first", "again, which adds no row"} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), "", file, &out))
		var rows, transactions, dead int
		_, err := fmt.Sscanf(out.String(), "%d rows in %d transactions, %d dead letters\n", &rows, &transactions, &dead)
		require.NoError(t, err, "output %q", out.String())
		require.Equal(t, orders-1, rows, when)
		require.Equal(t, 1, dead, when)
		require.GreaterOrEqual(t, transactions, orders/batch, when)
		require.Less(t, transactions, orders/2, "many orders in one: %s", when)
	}
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer db.Close()
	var first, last int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT min(id), max(id) FROM orders").Scan(&first, &last))
	require.Equal(t, []int{1, orders - 1}, []int{first, last})
}
