package feed

import (
	"context"
	"errors"

	"gorm.io/gorm"
)

// want asks for items of a leased partition: at most limit whose seq is over after.
type want struct {
	lease
	after int64
	limit int
}

// dueItems is the condition on items i of partition p that may be processed now.
func (d *dialect) dueItems() string {
	return "i.status = 'Available' AND (i.not_before IS NULL OR " + d.past("i.not_before") + ")"
}

const itemColumns = "i.partition_id, i.id, i.seq, i.gate, i.status, i.attempt, i.step, i.errors, i.data, i.not_before, i.version"

// fetch reads the items at the gates of leased partitions, oldest first in each. It gives none for a lease that is lost.
func (s *Store) fetch(ctx context.Context, t terms, wants []want) (items []Item, err error) {
	if s.batch && len(wants) > 1 {
		return s.fetchBatch(ctx, t, wants)
	}
	for _, w := range wants {
		var rows []itemRow
		err := s.db.WithContext(ctx).Table("items i").Select(itemColumns).
			Joins("JOIN partitions p ON p.id = i.partition_id AND p.gate = i.gate").
			Where("p.id = ? AND p.owner = ? AND p.epoch = ? AND p.status = 'Available'", w.id, t.owner, w.epoch).
			// The partition twice, so that the index serves where the planner sees no further.
			Where("i.partition_id = ? AND i.seq > ? AND "+s.dialect.dueItems(), w.id, w.after).
			Order("i.seq").Limit(w.limit).Find(&rows).Error
		if err != nil {
			return nil, err
		}
		for i := range rows {
			items = append(items, rows[i].item())
		}
	}
	return items, nil
}

// fetchBatch is fetch by one statement.
func (s *Store) fetchBatch(ctx context.Context, t terms, wants []want) (items []Item, err error) {
	n := len(wants)
	ids, epochs, afters, limits := make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, w := range wants {
		ids[i], epochs[i], afters[i], limits[i] = w.id, w.epoch, w.after, int64(w.limit)
	}
	rows, err := s.db.WithContext(ctx).Statement.ConnPool.QueryContext(ctx,
		"SELECT "+itemColumns+` FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS w(id, epoch, after, most)
		JOIN partitions p ON p.id = w.id AND p.owner = $5 AND p.epoch = w.epoch AND p.status = 'Available'
		CROSS JOIN LATERAL (SELECT * FROM items i WHERE i.partition_id = p.id AND i.gate = p.gate AND i.seq > w.after AND `+
			s.dialect.dueItems()+` ORDER BY i.seq LIMIT w.most) i`,
		ids, epochs, afters, limits, t.owner)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r itemRow
		err := rows.Scan(&r.PartitionID, &r.ID, &r.Seq, &r.Gate, &r.Status, &r.Attempt, &r.Step, &r.Errors, &r.Data, &r.NotBefore, &r.Version)
		if err != nil {
			return nil, err
		}
		items = append(items, r.item())
	}
	return items, rows.Err()
}

// outcome is what settling a drained gate came to.
type outcome int

const (
	lost    outcome = iota // the lease is another's
	again                  // there are items to process at the partition's gate
	passed                 // the partition is at the next gate
	idle                   // nothing to do now; the lease was given back
	blocked                // the partition is Failed; the lease was given back
	closed                 // the partition is Complete; the lease was given back
)

// settle decides what follows when a watcher has nothing left at a partition's gate. It has the row locked, as all
// that insert have, so that what it finds is so until it has written. It returns the gate the partition is at then.
func (s *Store) settle(ctx context.Context, t terms, l lease) (result outcome, gate int, err error) {
	err = s.write(ctx, s.locked(l.id, func(tx *gorm.DB, p *partitionRow) error {
		result, gate = lost, p.Gate
		if !p.ownedBy(t.owner, l.epoch) {
			return nil
		}
		set := s.freed()
		if p.Status != Available {
			result = idle
			return update(tx, p, set)
		}
		next, err := s.judge(tx, t, p, set)
		if err != nil {
			return err
		}
		if result, gate = next, p.Gate; result == again {
			return nil
		}
		if result == passed {
			gate = set["gate"].(int)
			delete(set, "owner")
			delete(set, "until")
		}
		return update(tx, p, set)
	}))
	if errors.Is(err, ErrNotFound) {
		return lost, 0, nil
	}
	return result, gate, err
}

// judge looks at a partition's items and adds to set what it is to be.
func (s *Store) judge(tx *gorm.DB, t terms, p *partitionRow, set map[string]any) (outcome, error) {
	var here []struct {
		Due int
		N   int
	}
	err := tx.Table("items i").Select("CASE WHEN "+s.dialect.dueItems()+" THEN 1 ELSE 0 END AS due, COUNT(*) AS n").
		Where("i.partition_id = ? AND i.status = 'Available' AND i.gate = ?", p.ID, p.Gate).Group("CASE WHEN " + s.dialect.dueItems() + " THEN 1 ELSE 0 END").
		Find(&here).Error
	if err != nil {
		return lost, err
	}
	for _, h := range here {
		if h.Due == 1 {
			return again, nil
		}
	}
	if len(here) > 0 {
		return idle, nil
	}
	if failed, err := s.has(tx, p.ID, "status = 'Failed' AND gate = ?", p.Gate); err != nil {
		return lost, err
	} else if failed {
		set["status"] = Failed
		return blocked, nil
	}
	next, err := s.nextGate(tx, p)
	if err != nil {
		return lost, err
	}
	if next != nil {
		if t.manual {
			return idle, nil
		}
		set["gate"] = *next
		return passed, nil
	}
	if !t.autoClose || !p.Sealed {
		return idle, nil
	}
	open, err := s.open(tx, p.ID, "1 = 1")
	if err != nil || open {
		return idle, err
	}
	set["status"] = Complete
	return closed, nil
}

// nextGate is the lowest gate above the partition's that has items which are not Complete, or nil.
func (s *Store) nextGate(tx *gorm.DB, p *partitionRow) (next *int, err error) {
	for _, status := range []string{"'Available'", "'Failed'"} {
		var gates []int
		err := tx.Table("items").Where("partition_id = ? AND status = "+status+" AND gate > ?", p.ID, p.Gate).
			Order("gate").Limit(1).Pluck("gate", &gates).Error
		if err != nil {
			return nil, err
		}
		if len(gates) > 0 && (next == nil || gates[0] < *next) {
			next = &gates[0]
		}
	}
	return next, nil
}
