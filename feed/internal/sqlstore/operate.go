package sqlstore

import (
	"context"
	"fmt"

	"gorm.io/gorm"
)

// Seal seals a partition.
func (s Records) Seal(ctx context.Context, partition string) error {
	return s.change(ctx, partition, func(tx *gorm.DB, p *Partition) error {
		if p.Sealed {
			return nil
		}
		return update(tx, p, map[string]any{"sealed": true})
	})
}

// ClosePartition makes a partition Complete.
func (s Records) ClosePartition(ctx context.Context, partition string) error {
	return s.change(ctx, partition, func(tx *gorm.DB, p *Partition) error {
		if p.Status == Complete {
			return nil
		}
		if open, err := anyOpen(tx, p.ID, "1 = 1"); err != nil {
			return err
		} else if open {
			return ErrNotDone
		}
		return update(tx, p, map[string]any{"status": Complete, "owner": nil, "claimant": nil})
	})
}

// Advance moves a partition to a gate.
func (s Records) Advance(ctx context.Context, partition string, gate int) error {
	return s.change(ctx, partition, func(tx *gorm.DB, p *Partition) error {
		switch {
		case gate == p.Gate:
			return nil
		case gate < p.Gate:
			return fmt.Errorf("at gate %d: %w", p.Gate, ErrGatePassed)
		case p.Status == Complete:
			return ErrClosed
		}
		if open, err := anyOpen(tx, p.ID, "gate < ?", gate); err != nil {
			return err
		} else if open {
			return ErrNotDone
		}
		return update(tx, p, map[string]any{"gate": gate, "status": Available})
	})
}

// Retry makes Failed items Available, the named ones or all, and returns how many.
func (s Records) Retry(ctx context.Context, partition string, items []string) (int, error) {
	return s.changeFailed(ctx, partition, items, map[string]any{"status": Available, "attempt": 0, "errors": nil, "not_before": nil})
}

// Skip makes Failed items Complete, the named ones or all, and returns how many.
func (s Records) Skip(ctx context.Context, partition string, items []string) (int, error) {
	return s.changeFailed(ctx, partition, items, map[string]any{"status": Complete, "not_before": nil})
}

func (s Records) changeFailed(ctx context.Context, partition string, items []string, set map[string]any) (n int, err error) {
	err = s.change(ctx, partition, func(tx *gorm.DB, p *Partition) (err error) {
		n, err = unfail(tx, p, items, set)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Reopen makes a partition Available and unsealed.
func (s Records) Reopen(ctx context.Context, partition string) error {
	return s.change(ctx, partition, func(tx *gorm.DB, p *Partition) error {
		if p.Status == Available && !p.Sealed {
			return nil
		}
		return update(tx, p, map[string]any{"status": Available, "sealed": false})
	})
}

// unfail changes the named items, or all, from Failed to what set says, and unblocks the partition.
func unfail(tx *gorm.DB, p *Partition, items []string, set map[string]any) (int, error) {
	set["version"] = gorm.Expr("version + 1")
	n := len(items)
	if n == 0 {
		done := tx.Table("items").Where("partition_id = ? AND status = 'Failed'", p.ID).Updates(set)
		if done.Error != nil {
			return 0, done.Error
		}
		n = int(done.RowsAffected)
	}
	for _, id := range items {
		if err := unfailOne(tx, p, id, set); err != nil {
			return 0, err
		}
	}
	return n, unblock(tx, p)
}

func unfailOne(tx *gorm.DB, p *Partition, id string, set map[string]any) error {
	if !possible(id) {
		return fmt.Errorf("item %q: %w", id, ErrNotFound)
	}
	done := tx.Table("items").Where("partition_id = ? AND id = ? AND status = 'Failed'", p.ID, id).Updates(set)
	if done.Error != nil || done.RowsAffected == 1 {
		return done.Error
	}
	row, err := findItem(tx, p.ID, id)
	if err != nil {
		return fmt.Errorf("item %q: %w", id, err)
	}
	return fmt.Errorf("item %q is %s, not Failed: %w", id, row.Status, ErrConflict)
}

// unblock makes a partition Available whose gate has items again, or no failed one any more.
func unblock(tx *gorm.DB, p *Partition) error {
	if p.Status != Failed {
		return nil
	}
	some, err := has(tx, p.ID, "gate = ? AND status = 'Available'", p.Gate)
	if err != nil {
		return err
	}
	failed, err := has(tx, p.ID, "gate = ? AND status = 'Failed'", p.Gate)
	if err != nil || (failed && !some) {
		return err
	}
	return update(tx, p, map[string]any{"status": Available})
}

// has tells whether the partition has an item for which the condition holds.
func has(tx *gorm.DB, partition, condition string, args ...any) (bool, error) {
	var found []int64
	err := tx.Table("items i").Where("partition_id = ?", partition).Where(condition, args...).Limit(1).Pluck("seq", &found).Error
	return len(found) > 0, err
}

// anyOpen tells whether the partition has an item for which the condition holds and which is not Complete. Each status is
// asked for alone, because each has its index.
func anyOpen(tx *gorm.DB, partition, condition string, args ...any) (bool, error) {
	found, err := has(tx, partition, "status = 'Available' AND "+condition, args...)
	if err != nil || found {
		return found, err
	}
	return has(tx, partition, "status = 'Failed' AND "+condition, args...)
}

// update writes a partition by its version. The caller has its row locked, so only a program that does not keep to
// the rules can have come between.
func update(tx *gorm.DB, p *Partition, set map[string]any) error {
	set["version"] = p.Version + 1
	done := tx.Table("partitions").Where("id = ? AND version = ?", p.ID, p.Version).Updates(set)
	if done.Error != nil {
		return done.Error
	}
	if done.RowsAffected == 0 {
		return ErrConflict
	}
	return nil
}

func findItem(tx *gorm.DB, partition, id string) (Item, error) {
	if !possible(partition) || !possible(id) {
		return Item{}, ErrNotFound
	}
	return first[Item](tx.Where("partition_id = ? AND id = ?", partition, id))
}

// first reads one row.
func first[R any](tx *gorm.DB) (row R, err error) {
	found := tx.Limit(1).Find(&row)
	if err = found.Error; err == nil && found.RowsAffected == 0 {
		err = ErrNotFound
	}
	return row, err
}
