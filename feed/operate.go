package feed

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// Seal closes a partition for new items: [Store.Insert] then returns [ErrClosed]. A watcher with [AutoClose] closes the partition when its last
// item is Complete. If it is sealed already, Seal does nothing. The error is [ErrNotFound].
func (s *Store) Seal(ctx context.Context, partition string) error {
	return s.SealTx(ctx, own{}, partition)
}

// SealTx is [Store.Seal] in the caller's transaction: see [Store.InsertTx].
func (s *Store) SealTx(ctx context.Context, tx any, partition string) error {
	return changePartition(ctx, s, tx, "seal", partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
		if p.Sealed {
			return nil
		}
		return p.Update(tx, map[string]any{"sealed": true})
	})
}

// ClosePartition makes a partition Complete, whether it is sealed or not. If it is Complete already, ClosePartition does nothing. Errors are
// [ErrNotFound], and [ErrNotDone] while an item is not Complete.
func (s *Store) ClosePartition(ctx context.Context, partition string) error {
	return changePartition(ctx, s, own{}, "close", partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
		if p.Status == sqlstore.Complete {
			return nil
		}
		if open, err := sqlstore.LowestOpen(tx, p.ID, math.MinInt); err != nil || open != nil {
			return cmp.Or(err, ErrNotDone)
		}
		closed := gorm.Expr(s.sql.Dialect.Now) // see Prune
		return p.Update(tx, map[string]any{"status": Complete, "owner": nil, "claimant": nil, "until": closed})
	})
}

// Advance moves a partition to a gate. If it is at that gate already, Advance does nothing. Errors are [ErrNotFound], [ErrGatePassed] if the
// partition is above that gate, [ErrNotDone] while an item below the gate is not Complete, and [ErrClosed] if the partition is Complete.
func (s *Store) Advance(ctx context.Context, partition string, gate int) error {
	return changePartition(ctx, s, own{}, fmt.Sprintf("advance to gate %d:", gate), partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
		switch {
		case gate == p.Gate:
			return nil
		case gate < p.Gate:
			return fmt.Errorf("at gate %d: %w", p.Gate, ErrGatePassed)
		case p.Status == sqlstore.Complete:
			return ErrClosed
		}
		if open, err := sqlstore.LowestOpen(tx, p.ID, math.MinInt); err != nil || (open != nil && *open < gate) {
			return cmp.Or(err, ErrNotDone)
		}
		return p.Update(tx, map[string]any{"gate": gate, "status": Available})
	})
}

// Retry makes Failed items Available: the named ones, or all of the partition if none is named. They are processed at once, with Attempt 0 and no
// Errors. [Item.History] keeps their errors. Errors are [ErrNotFound], and [ErrConflict] for a named item that is not Failed. After an error no named
// item is changed. If none is named, a transaction changes at most 1,000 items, so that it blocks others only briefly. After an error, call Retry
// again for the rest.
func (s *Store) Retry(ctx context.Context, partition string, items ...string) error {
	_, err := s.RetryFailed(ctx, partition, items...)
	return err
}

// RetryFailed is like [Store.Retry], and returns how many items it changed, even with an error.
func (s *Store) RetryFailed(ctx context.Context, partition string, items ...string) (int, error) {
	return unfail(ctx, s, "retry", partition, items, map[string]any{"status": Available, "attempt": 0, "errors": nil, "not_before": nil})
}

// Skip makes Failed items Complete without processing them. It selects items, and fails, as [Store.Retry] does.
func (s *Store) Skip(ctx context.Context, partition string, items ...string) error {
	_, err := s.SkipFailed(ctx, partition, items...)
	return err
}

// SkipFailed is like [Store.Skip], and returns how many items it changed, even with an error.
func (s *Store) SkipFailed(ctx context.Context, partition string, items ...string) (int, error) {
	return unfail(ctx, s, "skip", partition, items, map[string]any{"status": Complete, "not_before": nil})
}

// unfail applies set to the named Failed items, or to all, and unblocks the partition.
func unfail(ctx context.Context, s *Store, what, partition string, items []string, set map[string]any) (n int, err error) {
	set["version"] = gorm.Expr("version + 1")
	if len(items) == 0 {
		return unfailAll(ctx, s, what, partition, set)
	}
	err = changePartition(ctx, s, own{}, what, partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
		for _, id := range items {
			if err := unfailOne(tx, p, id, set); err != nil {
				return err
			}
		}
		return unblock(s.sql, tx, p)
	})
	if err != nil {
		return 0, err
	}
	return len(items), nil
}

// unfailAll changes the items in the order of their IDs, so that an item which fails again meanwhile is not changed twice.
func unfailAll(ctx context.Context, s *Store, what, partition string, set map[string]any) (n int, err error) {
	for after := ""; ; {
		var step []string
		err := changePartition(ctx, s, own{}, what, partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
			step = nil
			failed := tx.Model(&sqlstore.Item{}).Where("partition_id = ? AND status = 'Failed'", p.ID).Session(&gorm.Session{})
			err := failed.Where("id > ?", after).Order("id").Limit(stepRows).Pluck("id", &step).Error
			if err == nil && len(step) > 0 {
				err = failed.Where("id IN ?", step).Updates(set).Error
			}
			if err != nil {
				return err
			}
			return unblock(s.sql, tx, p)
		})
		if err != nil {
			return n, err
		}
		if n += len(step); len(step) < stepRows {
			return n, nil
		}
		after = step[len(step)-1]
	}
}

func unfailOne(tx *gorm.DB, p *sqlstore.Partition, id string, set map[string]any) error {
	if !sqlstore.Possible(id) {
		return fmt.Errorf("item %q: %w", id, ErrNotFound)
	}
	done := tx.Model(&sqlstore.Item{}).Where("partition_id = ? AND id = ? AND status = 'Failed'", p.ID, id).Updates(set)
	if done.Error != nil || done.RowsAffected == 1 {
		return done.Error
	}
	row, err := findItem(tx, p.ID, id)
	if err != nil {
		return fmt.Errorf("item %q: %w", id, err)
	}
	return fmt.Errorf("item %q is %s, not Failed: %w", id, row.Status, ErrConflict)
}

// unblock makes a Failed partition Available if its gate has an Available item, or no Failed one.
func unblock(s *sqlstore.Store, tx *gorm.DB, p *sqlstore.Partition) error {
	if p.Status != sqlstore.Failed {
		return nil
	}
	_, some, failed, err := s.Dialect.AtGate(tx, p)
	if err != nil || (failed && !some) {
		return err
	}
	return p.Update(tx, map[string]any{"status": Available})
}

// Reopen makes a Complete or Failed partition Available and unsealed, with its items as they were. The error is
// [ErrNotFound]. A partition that is blocked by a Failed item at its gate fails again as soon as a watcher leases it.
func (s *Store) Reopen(ctx context.Context, partition string) error {
	return changePartition(ctx, s, own{}, "reopen", partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
		if p.Status == sqlstore.Available && !p.Sealed {
			return nil
		}
		return p.Update(tx, map[string]any{"status": Available, "sealed": false})
	})
}
