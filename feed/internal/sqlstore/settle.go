package sqlstore

import (
	"context"
	"errors"

	"gorm.io/gorm"
)

// Outcome is what settling a drained gate came to.
type Outcome int

// The outcomes.
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
func (s *Store) Settle(ctx context.Context, t Terms, l Lease) (result Outcome, gate int, err error) {
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		p, err := s.Dialect.lock(tx, l.ID)
		if err != nil {
			return err
		}
		result, gate = Lost, p.Gate
		if !p.OwnedBy(t.Owner, l.Epoch) {
			return nil
		}
		set, err := s.Dialect.freed(tx)
		if err != nil {
			return err
		}
		if p.Status != Available {
			result = Idle
			return p.Update(tx, set)
		}
		next, err := s.Dialect.judge(tx, t, &p, set)
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
		return p.Update(tx, set)
	})
	if errors.Is(err, ErrNotFound) {
		return Lost, 0, nil
	}
	return result, gate, err
}

// judge looks at a partition's items and adds to set what it is to be.
func (d *dialect) judge(tx *gorm.DB, t Terms, p *Partition, set map[string]any) (Outcome, error) {
	if due, err := Has(tx, p.ID, "gate = ? AND "+d.dueItems(), p.Gate); err != nil || due {
		return Again, err
	}
	if later, err := Has(tx, p.ID, "gate = ? AND status = 'Available'", p.Gate); err != nil || later {
		return Idle, err
	}
	if failed, err := Has(tx, p.ID, "gate = ? AND status = 'Failed'", p.Gate); err != nil || failed {
		set["status"] = Failed
		return Blocked, err
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
	open, err := AnyOpen(tx, p.ID, "1 = 1")
	if err != nil || open {
		return Idle, err
	}
	set["status"] = Complete
	return Closed, nil
}

// nextGate is the lowest gate above the partition's that has items which are not Complete, or nil. Each status has its index.
func nextGate(tx *gorm.DB, p *Partition) (next *int, err error) {
	const above = "SELECT MIN(gate) AS gate FROM items WHERE partition_id = ? AND gate > ? AND status = "
	err = tx.Raw("SELECT MIN(gate) FROM ("+above+"'Available' UNION ALL "+above+"'Failed') gates", p.ID, p.Gate, p.ID, p.Gate).Row().Scan(&next)
	return next, err
}
