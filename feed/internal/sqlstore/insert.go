package sqlstore

import (
	"fmt"
	"strings"
	"sync"

	"gorm.io/gorm"
)

// addStatement locks a partition that takes items, and inserts them, in their order. A partition that does not is left alone.
const addStatement = `WITH p AS MATERIALIZED (
	SELECT id FROM partitions WHERE id = $1 AND gate <= $2 AND status = 'Available' AND NOT sealed FOR UPDATE)
INSERT INTO items (partition_id, id, gate, status, data, not_before, timer, version)
SELECT p.id, r.id, r.gate, 'Available', r.data, r.not_before, r.timer, 1 FROM p, (VALUES %s) AS r(n, id, gate, data, not_before, timer) ORDER BY r.n`

// addRows are the statements by the number of items.
var addRows sync.Map

func addOf(n int) string {
	if known, ok := addRows.Load(n); ok {
		return known.(string)
	}
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, $%d::text, $%d::bigint, $%d::bytea, $%d::timestamptz, $%d::bigint)", i, 5*i+3, 5*i+4, 5*i+5, 5*i+6, 5*i+7)
	}
	statement := fmt.Sprintf(addStatement, strings.Join(rows, ","))
	addRows.Store(n, statement)
	return statement
}

// Add inserts items into a partition by one statement, where the database has one for it and the partition takes them. Otherwise
// it inserts none.
func Add(s *Store, tx *gorm.DB, id string, rows []Item) (added bool, err error) {
	if !s.batch || len(rows) == 0 || !Possible(id) {
		return false, nil
	}
	args := make([]any, 2, 2+5*len(rows))
	lowest := rows[0].Gate
	for i := range rows {
		r := &rows[i]
		lowest = min(lowest, r.Gate)
		args = append(args, r.ID, r.Gate, r.Data, r.NotBefore, r.Timer)
	}
	args[0], args[1] = id, lowest
	done, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, addOf(len(rows)), args...)
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}
