package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nuid"
	"gorm.io/gorm"
)

// insertBatch is how many rows one INSERT has; SQL Server takes 2,100 parameters.
const insertBatch = 200

// CreatePartition creates a partition with its items and returns it as it is in the table. It takes ID, Gate and Sealed.
func (s Records) CreatePartition(ctx context.Context, p Partition, items []Item) (Partition, error) {
	p.Status, p.Version = Available, 1
	if err := NewItems(&p, items); err != nil {
		return p, err
	}
	if err := checkID("Partition.ID", p.ID); err != nil {
		return p, err
	}
	err := s.writeAndTell(ctx, p.ID, func(tx *gorm.DB) error {
		if err := tx.Create(&p).Error; err != nil {
			if duplicate(tx, err) {
				return ErrDuplicate
			}
			return err
		}
		return insert(tx, items)
	})
	return p, err
}

// Insert adds items to a partition. It takes ID, Gate, Data and NotBefore.
func (s Records) Insert(ctx context.Context, partition string, items []Item) error {
	err := s.change(ctx, partition, func(tx *gorm.DB, p *Partition) error {
		if p.Sealed || p.Status == Complete {
			return ErrClosed
		}
		if err := NewItems(p, items); err != nil {
			return err
		}
		if err := insert(tx, items); err != nil || !Unblocks(p, items) {
			return err
		}
		return update(tx, p, map[string]any{"status": Available})
	})
	if errors.Is(err, errTaken) {
		return s.nameTaken(ctx, partition, items, err)
	}
	return err
}

// errTaken is the ErrDuplicate of an index: one of the items is in the table, and only a look there tells which.
var errTaken = fmt.Errorf("one of the items: %w", ErrDuplicate)

// nameTaken is errTaken with an item that is in the partition already.
func (s Records) nameTaken(ctx context.Context, partition string, items []Item, err error) error {
	for part := range slices.Chunk(items, insertBatch) {
		ids := column(part, func(it *Item) string { return it.ID })
		var taken []string
		if s.DB.WithContext(ctx).Table("items").Where("partition_id = ? AND id IN ?", partition, ids).Limit(1).Pluck("id", &taken).Error != nil {
			return err
		}
		if len(taken) > 0 {
			return fmt.Errorf("item %q: %w", taken[0], ErrDuplicate)
		}
	}
	return err
}

// NewItems checks items for a partition whose row is locked or new, and completes them.
func NewItems(p *Partition, items []Item) error {
	seen := make(map[string]struct{}, len(items))
	for i := range items {
		it := &items[i]
		if it.ID == "" {
			it.ID = nuid.Next()
		}
		if err := checkID("Item.ID", it.ID); err != nil {
			return err
		}
		if _, twice := seen[it.ID]; twice {
			return fmt.Errorf("item %q: %w", it.ID, ErrDuplicate)
		}
		seen[it.ID] = struct{}{}
		if it.Gate < p.Gate {
			return fmt.Errorf("item %q at gate %d, partition at %d: %w", it.ID, it.Gate, p.Gate, ErrGatePassed)
		}
		it.PartitionID, it.Status, it.Version = p.ID, Available, 1
		if it.Data == nil {
			it.Data = []byte{}
		}
		if it.NotBefore != nil {
			at := it.NotBefore.UTC().Truncate(time.Microsecond)
			if at.Year() < 1 || at.Year() > 9999 {
				return Invalid("Item.NotBefore", "the year is %d; give one in 1..9999", at.Year())
			}
			it.NotBefore = &RowTime{at}
		}
	}
	return nil
}

// Unblocks tells whether a blocked gate has something to process again with these items.
func Unblocks(p *Partition, items []Item) bool {
	return p.Status == Failed && slices.ContainsFunc(items, func(it Item) bool { return it.Gate == p.Gate })
}

func insert(tx *gorm.DB, rows []Item) error {
	if len(rows) == 0 {
		return nil
	}
	err := tx.CreateInBatches(rows, insertBatch).Error
	if err != nil && duplicate(tx, err) {
		return errTaken
	}
	return err
}
