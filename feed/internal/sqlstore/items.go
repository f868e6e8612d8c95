package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"
)

// Want asks for items of a leased partition: at most Limit whose seq is above After, up to the one with which their data reaches Bytes.
type Want struct {
	Lease
	After        int64
	Limit, Bytes int
}

// dueItems returns the condition that an item i may be processed now.
func (d *dialect) dueItems() string {
	return "i.status = 'Available' AND (i.not_before IS NULL OR " + d.Past("i.not_before") + ")"
}

const itemColumns = "i.partition_id, i.id, i.seq, i.gate, i.status, i.attempt, i.step, i.errors, i.history, i.data, " +
	"i.not_before, i.version, i.timer, i.crashes"

// Fetch reads the items at the gates of leased partitions, oldest first in each. It returns none for a lost lease.
//
// Both forms find a partition's gate first and then read its items in the order of the index items_available, up to the limit. In a plain join of the
// tables, the gate is unknown, so planners read and sort all remaining items, and the cost of each fetch grows with the partition. A join of wants
// and partitions would compare each with each.
func (s *Store) Fetch(ctx context.Context, t Terms, wants []Want) (items []Item, err error) {
	if s.batch {
		return s.fetchBatch(ctx, t, wants)
	}
	for _, w := range wants {
		gate := s.DB.Table("partitions p").Select("p.gate").
			Where("p.id = ? AND p.owner = ? AND p.epoch = ? AND p.status = 'Available'", w.ID, t.Owner, w.Epoch)
		items, err = readUpTo(s, items, w.Bytes, s.DB.WithContext(ctx).Table("items i"+s.Dialect.byAvailable).Select(itemColumns).
			Where("i.partition_id = ? AND i.gate = (?) AND i.seq > ? AND "+s.Dialect.dueItems(), w.ID, gate, w.After).
			Order("i.seq").Limit(w.Limit))
		if err != nil {
			return nil, err
		}
	}
	return items, nil
}

// readUpTo appends the items of a query, up to the one with which their data reaches most.
func readUpTo(s *Store, items []Item, most int, query *gorm.DB) ([]Item, error) {
	rows, err := query.Rows()
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for left := most; left > 0 && rows.Next(); {
		var it Item
		if err := s.DB.ScanRows(rows, &it); err != nil {
			return nil, err
		}
		items, left = append(items, it), left-len(it.Data)
	}
	return items, rows.Err()
}

// fetchBatch is Fetch in one statement. The arrays are results of subqueries, whose length PostgreSQL does not look at. It would look at that of a
// parameter, find the kept plan too expensive for a few partitions, and plan each fetch anew.
func (s *Store) fetchBatch(ctx context.Context, t Terms, wants []Want) (items []Item, err error) {
	err = s.DB.WithContext(ctx).Raw("SELECT "+itemColumns+` FROM unnest((SELECT ?::text[]), (SELECT ?::bigint[]), (SELECT ?::bigint[]),
		(SELECT ?::bigint[]), (SELECT ?::bigint[])) AS w(id, epoch, after, most, bytes)
		CROSS JOIN LATERAL (SELECT *, SUM(octet_length(i.data)) OVER (ORDER BY i.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM (SELECT * FROM items i WHERE i.partition_id = w.id AND i.seq > w.after AND `+s.Dialect.dueItems()+` AND i.gate =
				(SELECT p.gate FROM partitions p WHERE p.id = w.id AND p.owner = ? AND p.epoch = w.epoch AND p.status = 'Available')
				ORDER BY i.seq LIMIT w.most) i) i WHERE i.before IS NULL OR i.before < w.bytes`,
		array(wants, func(w *Want) string { return w.ID }), array(wants, func(w *Want) int64 { return w.Epoch }),
		array(wants, func(w *Want) int64 { return w.After }), array(wants, func(w *Want) int { return w.Limit }),
		array(wants, func(w *Want) int { return w.Bytes }), t.Owner).Find(&items).Error
	return items, err
}

// addStatement locks a partition that accepts the items, and inserts them, in order. Otherwise it does nothing.
const addStatement = `WITH p AS MATERIALIZED (
	SELECT id FROM partitions WHERE id = $1 AND gate <= $2 AND status = 'Available' AND NOT sealed FOR UPDATE)
INSERT INTO items (partition_id, id, gate, status, data, not_before, timer, version)
SELECT p.id, r.id, r.gate, 'Available', r.data, r.not_before, r.timer, 1
FROM p, unnest($3::text[], $4::bigint[], $5::bytea[], $6::timestamptz[], $7::bigint[]) WITH ORDINALITY AS r(id, gate, data, not_before, timer, n)
ORDER BY r.n`

// Add inserts items into a partition in one statement, if the database has one and the partition accepts them. Otherwise it inserts none.
func Add(s *Store, tx *gorm.DB, id string, rows []Item) (added bool, err error) {
	if !s.batch || len(rows) == 0 || !Possible(id) {
		return false, nil
	}
	gates := Map(rows, func(r *Item) int { return r.Gate })
	done, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, addStatement, id, slices.Min(gates),
		Map(rows, func(r *Item) string { return r.ID }), gates, Map(rows, func(r *Item) []byte { return r.Data }),
		Map(rows, (*Item).notBefore), Map(rows, func(r *Item) *int64 { return r.Timer }))
	if err != nil {
		if _, answered := errors.AsType[serverError](err); !answered && tx.Statement.Context.Err() == nil && !errors.Is(err, driver.ErrBadConn) {
			err = nil // a driver other than pgx takes no arrays
		}
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// serverError is an error of PostgreSQL, from any driver.
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
