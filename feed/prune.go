package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	// pruneRows is how many items one transaction of Prune deletes, or one page of an export has.
	pruneRows = 1000
	// pruning is the status of a partition of which items are being deleted. For inserters and operators it is not there.
	pruning = "Pruning"
)

// Pruned is how much [Store.Prune] deleted.
type Pruned struct{ Partitions, Items int }

// Prune deletes the partitions that have been Complete for longer than age, with their items, and returns how many. Each
// transaction deletes at most 1,000 items, so that nobody waits for long. Where Prune ends early, the next one deletes
// the rest; until then such a partition has the status Pruning, and cannot be reopened.
//
// If export is not nil, it is called with each partition and its items, by their IDs, before any of these is deleted. If it
// returns an error, Prune deletes nothing of the partition and returns the error. After a crash a partition may be exported
// again, and then with only those of its items that are left.
//
// The age counts from the time at which the partition was closed, by the database's clock. If that is not known, because another
// program or an earlier version of this package closed it, the age counts from the first Prune.
func (s *Store) Prune(ctx context.Context, age time.Duration, export func(p Partition, items iter.Seq2[Item, error]) error) (Pruned, error) {
	if age < 0 {
		return Pruned{}, invalid("age", "%v is negative", age)
	}
	var done Pruned
	err := eachPrunable(ctx, s.sql, age, func(id string) error { return prune(ctx, s.sql, id, export, &done) })
	s.prunedPartitions.Add(int64(done.Partitions))
	s.prunedItems.Add(int64(done.Items))
	return done, wrapped(err, "prune")
}

// Pruned returns what this Store has deleted by [Store.Prune] since it was opened.
func (s *Store) Pruned() Pruned {
	return Pruned{Partitions: int(s.prunedPartitions.Load()), Items: int(s.prunedItems.Load())}
}

// eachPrunable calls f with the partitions that were closed long enough ago.
func eachPrunable(ctx context.Context, s *sqlstore.Store, age time.Duration, f func(id string) error) error {
	err := s.Transact(ctx, func(tx *gorm.DB) error {
		return tx.Exec("UPDATE partitions SET until = " + s.Dialect.Now + " WHERE status = 'Complete' AND until IS NULL").Error
	})
	for after := ""; err == nil; {
		var page []sqlstore.Partition
		var now time.Time
		err = s.Read(ctx, func(db *gorm.DB) (err error) {
			if now, err = s.Now(db); err != nil {
				return err
			}
			return db.Where("status IN ('Complete', '"+pruning+"') AND id > ?", after).Order("id").Limit(pruneRows).Find(&page).Error
		})
		if len(page) == 0 {
			return err
		}
		for _, p := range page {
			after = p.ID
			if p.Status == pruning || (p.Until != nil && now.Sub(*p.Until) >= age) {
				if err := f(p.ID); err != nil {
					return err
				}
			}
		}
	}
	return err
}

// prune deletes a partition. It marks it first: nobody can open it again between the export and the end of all items.
func prune(ctx context.Context, s *sqlstore.Store, id string, export func(Partition, iter.Seq2[Item, error]) error, done *Pruned) error {
	row, is, err := mark(ctx, s, id, sqlstore.Complete, pruning)
	if errors.Is(err, ErrNotFound) {
		return nil // somebody else was faster
	}
	if err != nil {
		return fmt.Errorf("partition %q: %w", id, err)
	}
	if is != pruning {
		return nil // it was opened again
	}
	if export != nil {
		if err := export(partitionOf(&row), byID(ctx, s, id)); err != nil {
			if row.Status == sqlstore.Complete {
				_, _, markErr := mark(context.WithoutCancel(ctx), s, id, pruning, sqlstore.Complete)
				err = errors.Join(err, markErr)
			}
			return fmt.Errorf("export partition %q: %w", id, err)
		}
	}
	for last := false; !last; {
		n := 0
		err := s.Transact(ctx, func(tx *gorm.DB) error {
			var ids []string
			err := tx.Table("items").Where("partition_id = ?", id).Order("id").Limit(pruneRows).Pluck("id", &ids).Error
			n, last = len(ids), len(ids) < pruneRows
			if err == nil && n > 0 {
				err = tx.Where("partition_id = ? AND id <= ?", id, ids[n-1]).Delete(&sqlstore.Item{}).Error
			}
			if err != nil || !last {
				return err
			}
			return tx.Where("id = ? AND status = ?", id, pruning).Delete(&sqlstore.Partition{}).Error
		})
		if err != nil {
			return fmt.Errorf("delete partition %q: %w", id, err)
		}
		done.Items += n
	}
	done.Partitions++
	return nil
}

// mark changes a partition's status, if it has this one and no item that is not Complete, which another program may have
// inserted. It returns the row as it was, and the status that it has now.
func mark(ctx context.Context, s *sqlstore.Store, id, from, to string) (row sqlstore.Partition, is string, err error) {
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		return s.ChangeIn(tx, id, func(tx *gorm.DB, p *sqlstore.Partition) error {
			row, is = *p, p.Status
			if open, err := sqlstore.AnyOpen(tx, id, "1 = 1"); err != nil || open || p.Status != from {
				return err
			}
			is = to
			return p.Update(tx, map[string]any{"status": to})
		})
	})
	return row, is, err
}

// byID are all items of a partition, by their IDs: pages in that order cost the same however large the partition is.
func byID(ctx context.Context, s *sqlstore.Store, partition string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for after := ""; ; {
			var page []sqlstore.Item
			err := s.Read(ctx, func(db *gorm.DB) error {
				return db.Where("partition_id = ? AND id > ?", partition, after).Order("id").Limit(pruneRows).Find(&page).Error
			})
			if err != nil {
				yield(Item{}, err)
				return
			}
			for i := range page {
				if after = page[i].ID; !yield(itemOf(&page[i]), nil) {
					return
				}
			}
			if len(page) < pruneRows {
				return
			}
		}
	}
}
