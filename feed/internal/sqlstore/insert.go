package sqlstore

import (
	"errors"
	"time"

	"gorm.io/gorm"
)

// addStatement locks a partition that takes items, and inserts them, in their order. A partition that does not is left alone.
const addStatement = `WITH p AS MATERIALIZED (
	SELECT id FROM partitions WHERE id = $1 AND gate <= $2 AND status = 'Available' AND NOT sealed FOR UPDATE)
INSERT INTO items (partition_id, id, gate, status, data, not_before, timer, version)
SELECT p.id, r.id, r.gate, 'Available', r.data, r.not_before, r.timer, 1
FROM p, unnest($3::text[], $4::bigint[], $5::bytea[], $6::timestamptz[], $7::bigint[]) WITH ORDINALITY AS r(id, gate, data, not_before, timer, n)
ORDER BY r.n`

// Add inserts items into a partition by one statement, where the database has one for it and the partition takes them. Otherwise
// it inserts none.
func Add(s *Store, tx *gorm.DB, id string, rows []Item) (added bool, err error) {
	if !s.batch || len(rows) == 0 || !Possible(id) {
		return false, nil
	}
	lowest := rows[0].Gate
	for i := range rows {
		lowest = min(lowest, rows[i].Gate)
	}
	done, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, addStatement, id, lowest,
		Map(rows, func(r *Item) string { return r.ID }), Map(rows, func(r *Item) int { return r.Gate }),
		Map(rows, func(r *Item) []byte { return r.Data }), Map(rows, (*Item).notBefore), Map(rows, func(r *Item) *int64 { return r.Timer }))
	if err != nil {
		if _, answered := errors.AsType[serverError](err); !answered {
			err = nil // a driver other than pgx takes no arrays, or the connection broke, and all that follows fails
		}
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// serverError is an error of PostgreSQL, as each driver has it.
type serverError interface {
	error
	SQLState() string
}

func (r *Item) notBefore() *time.Time {
	if r.NotBefore == nil {
		return nil
	}
	return &r.NotBefore.Time
}
