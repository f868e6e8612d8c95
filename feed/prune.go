package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// stepRows is the maximum number of items that one transaction of Prune, Retry or Skip changes, and that a page of an export has.
const stepRows = 1000

// Pruned counts the rows that [Store.Prune] deleted.
type Pruned struct{ Partitions, Items int }

// Prune deletes the partitions that have been Complete for at least age, with their items, and returns how many rows it deleted. Each
// transaction deletes at most 1,000 items, so that it blocks others only briefly. If Prune ends early, the next call deletes the rest. Until
// then such a partition has the status Pruning, and cannot be reopened. A negative age is [ErrInvalid].
//
// If export is not nil, Prune calls it with each partition and its items, ordered by ID, before it deletes any of them. If export returns an
// error, or an item cannot be read, Prune deletes nothing of the partition and returns the error. If a partition changes during its export, for
// example because it is reopened, Prune does not delete it. A partition can be exported more than once: after a crash or such a change, and by
// concurrent calls of Prune.
//
// The age counts from the time at which the partition was closed, by the database's clock. If that time is unknown, because another program or an
// earlier version of this package closed it, the age counts from the first Prune.
func (s *Store) Prune(ctx context.Context, age time.Duration, export func(p Partition, items iter.Seq2[Item, error]) error) (Pruned, error) {
	if age < 0 {
		return Pruned{}, invalid("age", "%v is negative", age)
	}
	var done Pruned
	for after := ""; ; {
		page, now, err := toPrune(ctx, s.sql, after)
		if len(page) == 0 || err != nil {
			return done, wrapped(err, "prune")
		}
		for i := range page {
			p := &page[i]
			after = p.ID
			if p.Status != sqlstore.Pruning && now.Sub(p.Until.Time) < age {
				continue
			}
			if err := s.prune(ctx, p, export, &done); err != nil {
				return done, wrapped(err, "prune partition %q", p.ID)
			}
		}
	}
}

// Pruned returns how many rows [Store.Prune] has deleted on this Store since it was opened, including calls that still run or ended early.
func (s *Store) Pruned() Pruned {
	return Pruned{Partitions: int(s.prunedPartitions.Load()), Items: int(s.prunedItems.Load())}
}

// toPrune returns the next partitions that are Complete or being pruned, and the time of the database. Partitions without the time at which they
// became Complete get the present time.
func toPrune(ctx context.Context, s *sqlstore.Store, after string) (page []sqlstore.Partition, now time.Time, err error) {
	err = s.Read(ctx, func(db *gorm.DB) (err error) {
		if now, err = s.Dialect.Clock(db); err != nil {
			return err
		}
		return db.Where("status IN ('Complete', 'Pruning') AND id > ?", after).Order("id").Limit(stepRows).Find(&page).Error
	})
	var ids []string
	for i := range page {
		if u := page[i].Until; u == nil || u.IsZero() {
			page[i].Until = &sqlstore.RowTime{Time: now}
			ids = append(ids, page[i].ID)
		}
	}
	if len(ids) > 0 {
		err = s.Transact(ctx, func(tx *gorm.DB) error {
			return tx.Table("partitions").Where("status = 'Complete' AND until IS NULL AND id IN ?", ids).Update("until", gorm.Expr(s.Dialect.Now)).Error
		})
	}
	return page, now, err
}

// prune exports a partition, marks it, and deletes it. It stops before the mark if the partition has changed since it was read. After the mark,
// nobody can reopen the partition. A partition that is marked already was exported. prune adds the rows to done after each transaction.
func (s *Store) prune(ctx context.Context, p *sqlstore.Partition, export func(Partition, iter.Seq2[Item, error]) error, done *Pruned) error {
	if p.Status != sqlstore.Pruning {
		if export != nil {
			var unread error
			err := export(partitionOf(p), byID(ctx, s.sql, p.ID, &unread))
			if err = cmp.Or(err, unread); err != nil {
				return fmt.Errorf("export: %w", err)
			}
		}
		if marked, err := mark(ctx, s.sql, p); err != nil || !marked {
			return err
		}
	}
	// Each step begins where the previous one ended. An index keeps the entries of deleted rows until a vacuum, and they would be read again.
	for after, next, last := "", "", false; !last; after = next {
		var items, partitions int64
		err := s.sql.Transact(ctx, func(tx *gorm.DB) error {
			var step []string // the last item of this step, if more may follow
			err := tx.Table("items").Where("partition_id = ? AND id > ?", p.ID, after).Order("id").Offset(stepRows-1).Limit(1).Pluck("id", &step).Error
			if err != nil {
				return err
			}
			rows := tx.Where("partition_id = ?", p.ID)
			if last = len(step) == 0; !last {
				rows, next = rows.Where("id > ? AND id <= ?", after, step[0]), step[0]
			}
			deleted := rows.Delete(&sqlstore.Item{})
			if items = deleted.RowsAffected; deleted.Error != nil || !last {
				return deleted.Error
			}
			deleted = tx.Where("id = ? AND status = ?", p.ID, sqlstore.Pruning).Delete(&sqlstore.Partition{})
			partitions = deleted.RowsAffected
			return deleted.Error
		})
		if err != nil {
			return err
		}
		done.Items += int(items)
		done.Partitions += int(partitions)
		s.prunedItems.Add(items)
		s.prunedPartitions.Add(partitions)
	}
	return nil
}

// mark sets a partition to Pruning and reports whether it did. It does not if the partition is gone or has changed, or if another program
// has inserted an item that is not Complete.
func mark(ctx context.Context, s *sqlstore.Store, read *sqlstore.Partition) (marked bool, err error) {
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		marked = false // if the transaction is repeated
		return s.Change(tx, read.ID, func(tx *gorm.DB, p *sqlstore.Partition) error {
			if open, err := sqlstore.LowestOpen(tx, p.ID, math.MinInt); err != nil || open != nil || p.Status != read.Status || p.Version != read.Version {
				return err
			}
			marked = true
			return p.Update(tx, map[string]any{"status": sqlstore.Pruning})
		})
	})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return marked, err
}

// byID returns all items of a partition, ordered by ID. The cost of a page in that order does not grow with the partition. It sets unread to the
// error of a page that could not be read, because a caller may ignore the error.
func byID(ctx context.Context, s *sqlstore.Store, partition string, unread *error) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for after := ""; ; {
			var page []sqlstore.Item
			err := s.Read(ctx, func(db *gorm.DB) error {
				return db.Where("partition_id = ? AND id > ?", partition, after).Order("id").Limit(stepRows).Find(&page).Error
			})
			if err != nil {
				*unread = err
				yield(Item{}, err)
				return
			}
			for i := range page {
				if after = page[i].ID; !yield(itemOf(&page[i]), nil) {
					return
				}
			}
			if len(page) < stepRows {
				return
			}
		}
	}
}
