package feed

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/xid"
	"gorm.io/gorm"
)

// insertBatch is how many rows one INSERT has; SQL Server takes 2,100 parameters.
const insertBatch = 200

// CreatePartition creates a partition with its items, all or nothing. Of p it takes ID, Gate and Sealed, of items
// what [Store.Insert] takes; an empty ID is generated. It returns the partition as it is in the table. Errors are
// [ErrDuplicate], [ErrGatePassed] for an item below the partition's gate, and [ErrInvalid].
func (s *Store) CreatePartition(ctx context.Context, p Partition, items ...Item) (Partition, error) {
	if p.ID == "" {
		p.ID = xid.New().String()
	}
	row := partitionRow{ID: p.ID, Gate: p.Gate, Status: Available, Sealed: p.Sealed, Version: 1}
	rows, err := newRows(&row, items)
	if err == nil {
		err = checkID("Partition.ID", p.ID)
	}
	if err == nil {
		err = s.wakeAfter(ctx, p.ID, func(tx *gorm.DB) error {
			if err := tx.Create(&row).Error; err != nil {
				if s.duplicate(err) {
					return ErrDuplicate
				}
				return err
			}
			return s.insert(tx, rows)
		})
	}
	if err != nil {
		return Partition{}, fmt.Errorf("feed: create partition %q: %w", p.ID, err)
	}
	return row.partition(), nil
}

// Insert adds items to a partition, all or none. It takes ID, Gate, Data and NotBefore; an empty ID is generated.
// Errors are [ErrNotFound], [ErrClosed] where the partition is sealed or Complete, [ErrGatePassed] for an item below
// its gate, [ErrDuplicate] and [ErrInvalid].
func (s *Store) Insert(ctx context.Context, partition string, items ...Item) error {
	err := s.change(ctx, partition, func(tx *gorm.DB, p *partitionRow) error {
		if p.Sealed || p.Status == Complete {
			return ErrClosed
		}
		rows, err := newRows(p, items)
		if err != nil {
			return err
		}
		return s.insert(tx, rows)
	})
	if err != nil {
		return fmt.Errorf("feed: insert into partition %q: %w", partition, err)
	}
	return nil
}

// newRows checks items for a partition whose row is locked or new.
func newRows(p *partitionRow, items []Item) ([]itemRow, error) {
	rows := make([]itemRow, len(items))
	seen := make(map[string]struct{}, len(items))
	for i, it := range items {
		if it.ID == "" {
			it.ID = xid.New().String()
		}
		if err := checkID("Item.ID", it.ID); err != nil {
			return nil, err
		}
		if _, twice := seen[it.ID]; twice {
			return nil, fmt.Errorf("item %q: %w", it.ID, ErrDuplicate)
		}
		seen[it.ID] = struct{}{}
		if it.Gate < p.Gate {
			return nil, fmt.Errorf("item %q at gate %d, partition at %d: %w", it.ID, it.Gate, p.Gate, ErrGatePassed)
		}
		rows[i] = itemRow{PartitionID: p.ID, ID: it.ID, Gate: it.Gate, Status: Available, Data: it.Data, Version: 1}
		if rows[i].Data == nil {
			rows[i].Data = []byte{}
		}
		if !it.NotBefore.IsZero() {
			at := it.NotBefore.UTC().Truncate(time.Microsecond)
			rows[i].NotBefore = &at
		}
	}
	return rows, nil
}

func (s *Store) insert(tx *gorm.DB, rows []itemRow) error {
	if len(rows) == 0 {
		return nil
	}
	err := tx.CreateInBatches(rows, insertBatch).Error
	if err != nil && s.duplicate(err) {
		return fmt.Errorf("one of %d items: %w", len(rows), ErrDuplicate)
	}
	return err
}
