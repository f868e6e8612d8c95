package sqlstore

import (
	"context"
	"errors"

	"gorm.io/gorm"
)

// Outcome is what settling a drained gate came to.
type Outcome int

// What it comes to.
const (
	Lost    Outcome = iota // the lease is another's
	Again                  // there are items to process at the partition's gate
	Passed                 // the partition is at the next gate
	Idle                   // nothing to do now; the lease was given back
	Blocked                // the partition is Failed; the lease was given back
	Closed                 // the partition is Complete; the lease was given back
)

// Settle decides what follows when a watcher has nothing left at a partition's gate. It has the row locked, as all
// that insert have, so that what it finds is so until it has written. It returns the gate the partition is at then.
func (s Leases) Settle(ctx context.Context, t Terms, l Lease) (result Outcome, gate int, err error) {
	err = s.write(ctx, s.locked(l.ID, func(tx *gorm.DB, p *Partition) error {
		result, gate = Lost, p.Gate
		if !p.OwnedBy(t.Owner, l.Epoch) {
			return nil
		}
		set, err := s.freed(tx)
		if err != nil {
			return err
		}
		if p.Status != Available {
			result = Idle
			return update(tx, p, set)
		}
		next, err := s.judge(tx, t, p, set)
		if err != nil {
			return err
		}
		if result, gate = next, p.Gate; result == Again {
			return nil
		}
		if result == Passed {
			gate = set["gate"].(int)
			delete(set, "owner")
			delete(set, "until")
		}
		return update(tx, p, set)
	}))
	if errors.Is(err, ErrNotFound) {
		return Lost, 0, nil
	}
	return result, gate, err
}

// judge looks at a partition's items and adds to set what it is to be.
func (s Leases) judge(tx *gorm.DB, t Terms, p *Partition, set map[string]any) (Outcome, error) {
	var here []struct {
		Due int
		N   int
	}
	err := tx.Table("items i").Select("CASE WHEN "+s.Dialect.dueItems()+" THEN 1 ELSE 0 END AS due, COUNT(*) AS n").
		Where("i.partition_id = ? AND i.status = 'Available' AND i.gate = ?", p.ID, p.Gate).Group("CASE WHEN " + s.Dialect.dueItems() + " THEN 1 ELSE 0 END").
		Find(&here).Error
	if err != nil {
		return Lost, err
	}
	for _, h := range here {
		if h.Due == 1 {
			return Again, nil
		}
	}
	if len(here) > 0 {
		return Idle, nil
	}
	if failed, err := has(tx, p.ID, "status = 'Failed' AND gate = ?", p.Gate); err != nil {
		return Lost, err
	} else if failed {
		set["status"] = Failed
		return Blocked, nil
	}
	next, err := nextGate(tx, p)
	if err != nil {
		return Lost, err
	}
	if next != nil {
		if t.Manual {
			return Idle, nil
		}
		set["gate"] = *next
		return Passed, nil
	}
	if !t.AutoClose || !p.Sealed {
		return Idle, nil
	}
	open, err := anyOpen(tx, p.ID, "1 = 1")
	if err != nil || open {
		return Idle, err
	}
	set["status"] = Complete
	return Closed, nil
}

// nextGate is the lowest gate above the partition's that has items which are not Complete, or nil.
func nextGate(tx *gorm.DB, p *Partition) (next *int, err error) {
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
