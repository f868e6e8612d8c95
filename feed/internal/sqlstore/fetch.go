package sqlstore

import "context"

// Want asks for items of a leased partition: at most limit whose seq is over after.
type Want struct {
	Lease
	After int64
	Limit int
}

// dueItems is the condition on items i of partition p that may be processed now.
func (d *dialect) dueItems() string {
	return "i.status = 'Available' AND (i.not_before IS NULL OR " + d.Past("i.not_before") + ")"
}

const itemColumns = "i.partition_id, i.id, i.seq, i.gate, i.status, i.attempt, i.step, i.errors, i.history, i.data, i.not_before, i.version, i.timer"

// Fetch reads the items at the gates of leased partitions, oldest first in each. It gives none for a lease that is lost.
//
// Both forms find a partition's gate first and then read its items in the order of the index items_available, up to the limit. In a
// plain join of the tables the gate is not known, so planners read all items that remain and sort them: each fetch then costs as
// much as the partition is large.
func (s *Store) Fetch(ctx context.Context, t Terms, wants []Want) (items []Item, err error) {
	if s.batch {
		return s.fetchBatch(ctx, t, wants)
	}
	for _, w := range wants {
		var rows []Item
		gate := s.DB.Table("partitions p").Select("p.gate").
			Where("p.id = ? AND p.owner = ? AND p.epoch = ? AND p.status = 'Available'", w.ID, t.Owner, w.Epoch)
		err := s.DB.WithContext(ctx).Table("items i"+s.Dialect.byAvailable).Select(itemColumns).
			Where("i.partition_id = ? AND i.gate = (?) AND i.seq > ? AND "+s.Dialect.dueItems(), w.ID, gate, w.After).
			Order("i.seq").Limit(w.Limit).Find(&rows).Error
		if err != nil {
			return nil, err
		}
		items = append(items, rows...)
	}
	return items, nil
}

// fetchBatch is Fetch by one statement.
func (s *Store) fetchBatch(ctx context.Context, t Terms, wants []Want) (items []Item, err error) {
	err = s.DB.WithContext(ctx).Raw("SELECT "+itemColumns+` FROM unnest(?::text[], ?::bigint[], ?::bigint[], ?::bigint[]) AS w(id, epoch, after, most)
		JOIN partitions p ON p.id = w.id AND p.owner = ? AND p.epoch = w.epoch AND p.status = 'Available'
		CROSS JOIN LATERAL (SELECT * FROM items i WHERE i.partition_id = p.id AND i.gate = p.gate AND i.seq > w.after AND `+
		s.Dialect.dueItems()+` ORDER BY i.seq LIMIT w.most) i`,
		array(wants, func(w *Want) string { return w.ID }), array(wants, func(w *Want) int64 { return w.Epoch }),
		array(wants, func(w *Want) int64 { return w.After }), array(wants, func(w *Want) int { return w.Limit }), t.Owner).Scan(&items).Error
	return items, err
}

// Map is what value makes of each row.
func Map[R, V any](rows []R, value func(*R) V) []V {
	list := make([]V, len(rows))
	for i := range rows {
		list[i] = value(&rows[i])
	}
	return list
}

// array is a column as a parameter, by its address: GORM takes a slice apart.
func array[R, V any](rows []R, value func(*R) V) *[]V {
	return new(Map(rows, value))
}
