package sqlstore

import (
	"context"
	"errors"
	"math"

	"gorm.io/gorm"
)

// Outcome is the result of settling a drained gate.
type Outcome int

// The outcomes.
const (
	Lost    Outcome = iota // the lease is lost
	Again                  // there are items to process at the partition's gate
	Passed                 // the partition is at the next gate
	Idle                   // nothing to do now; the lease was released
	Blocked                // the partition is Failed; the lease was released
	Closed                 // the partition is Complete; the lease was released
)

// Settle decides what follows when a watcher has nothing left at a partition's gate. It locks the row, as every insert does, so that its findings
// hold until it has written. It returns the partition's gate after that.
func (s *Store) Settle(ctx context.Context, t Terms, l Lease) (result Outcome, gate int, err error) {
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		rows := s.Dialect.lock(tx, l.ID)
		if s.batch {
			rows = rows.Where(waitForLock, lockWait.Milliseconds())
		}
		p, err := First[Partition](rows, "id = ?", l.ID)
		if err != nil {
			return err
		}
		result, gate = Lost, p.Gate
		if !p.OwnedBy(t.Owner, l.Epoch) {
			return nil
		}
		set := s.Dialect.freed()
		result, err = s.Dialect.judge(tx, t, &p, set)
		if gate = p.Gate; err != nil || result == Again {
			return err
		}
		return p.Update(tx, set)
	})
	if errors.Is(err, ErrNotFound) {
		return Lost, 0, nil
	}
	return result, gate, err
}

// judge decides on a partition by its items, and adds the changes to set, which releases the lease.
func (d *dialect) judge(tx *gorm.DB, t Terms, p *Partition, set map[string]any) (Outcome, error) {
	if p.Status != Available {
		return Idle, nil
	}
	due, later, failed, err := d.AtGate(tx, p)
	switch {
	case err != nil:
		return Lost, err
	case due:
		return Again, nil
	case later:
		return Idle, nil
	case failed:
		set["status"] = Failed
		return Blocked, nil
	}
	next, err := LowestOpen(tx, p.ID, p.Gate)
	switch {
	case err != nil:
		return Lost, err
	case next != nil && t.Manual:
		return Idle, nil
	case next != nil:
		delete(set, "owner")
		delete(set, "until")
		p.Gate, set["gate"] = *next, *next
		return Passed, nil
	case !t.AutoClose || !p.Sealed:
		return Idle, nil
	}
	if below, err := LowestOpen(tx, p.ID, math.MinInt); err != nil || below != nil {
		return Idle, err
	}
	set["status"] = Complete
	return Closed, nil
}

// AtGate reports which items a partition has at its gate: Available ones whose time has come, Available ones, and Failed ones.
func (d *dialect) AtGate(tx *gorm.DB, p *Partition) (due, available, failed bool, err error) {
	has := func(condition string) string {
		return "CASE WHEN EXISTS (SELECT 1 FROM items i WHERE i.partition_id = @id AND i.gate = @gate AND " + condition + ") THEN 1 ELSE 0 END"
	}
	err = ScanRow(tx.Raw("SELECT "+has(d.dueItems())+", "+has("i.status = 'Available'")+", "+has("i.status = 'Failed'"),
		map[string]any{"id": p.ID, "gate": p.Gate}), &due, &available, &failed)
	return due, available, failed, err
}

// LowestOpen returns the lowest gate, from a gate on, at which a partition has items that are not Complete, or nil. Each status has an index.
func LowestOpen(tx *gorm.DB, partition string, from int) (gate *int, err error) {
	const lowest = "SELECT MIN(gate) AS gate FROM items WHERE partition_id = ? AND gate >= ? AND status = "
	err = ScanRow(tx.Raw("SELECT MIN(gate) FROM ("+lowest+"'Available' UNION ALL "+lowest+"'Failed') gates", partition, from, partition, from), &gate)
	return gate, err
}
