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
func (s *Store) CreatePartition(ctx context.Context, p Partition, items []Item) (Partition, error) {
	row := Partition{ID: p.ID, Gate: p.Gate, Status: Available, Sealed: p.Sealed, Version: 1}
	rows, err := NewItems(&row, items)
	if err == nil {
		err = checkID("Partition.ID", p.ID)
	}
	if err != nil {
		return Partition{}, err
	}
	err = s.writeAndTell(ctx, p.ID, func(tx *gorm.DB) error {
		if err := tx.Create(&row).Error; err != nil {
			if s.duplicate(err) {
				return ErrDuplicate
			}
			return err
		}
		return s.insert(tx, rows)
	})
	return row, err
}

// Insert adds items to a partition. It takes ID, Gate, Data and NotBefore.
func (s *Store) Insert(ctx context.Context, partition string, items []Item) error {
	err := s.change(ctx, partition, func(tx *gorm.DB, p *Partition) error {
		if p.Sealed || p.Status == Complete {
			return ErrClosed
		}
		rows, err := NewItems(p, items)
		if err != nil {
			return err
		}
		if err := s.insert(tx, rows); err != nil || !Unblocks(p, rows) {
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
func (s *Store) nameTaken(ctx context.Context, partition string, items []Item, err error) error {
	for part := range slices.Chunk(items, insertBatch) {
		ids := make([]string, len(part))
		for i, it := range part {
			ids[i] = it.ID
		}
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

// NewItems checks items for a partition whose row is locked or new.
func NewItems(p *Partition, items []Item) ([]Item, error) {
	rows := make([]Item, len(items))
	seen := make(map[string]struct{}, len(items))
	for i, it := range items {
		if it.ID == "" {
			it.ID = nuid.Next()
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
		rows[i] = Item{PartitionID: p.ID, ID: it.ID, Gate: it.Gate, Status: Available, Data: it.Data, Version: 1}
		if rows[i].Data == nil {
			rows[i].Data = []byte{}
		}
		if it.NotBefore != nil {
			at := it.NotBefore.UTC().Truncate(time.Microsecond)
			if at.Year() < 1 || at.Year() > 9999 {
				return nil, invalid("Item.NotBefore", "the year is %d; give one in 1..9999", at.Year())
			}
			rows[i].NotBefore = &RowTime{at}
		}
	}
	return rows, nil
}

// Unblocks tells whether a blocked gate has something to process again with these items.
func Unblocks(p *Partition, items []Item) bool {
	return p.Status == Failed && slices.ContainsFunc(items, func(it Item) bool { return it.Gate == p.Gate })
}

func (s *Store) insert(tx *gorm.DB, rows []Item) error {
	if len(rows) == 0 {
		return nil
	}
	err := tx.CreateInBatches(rows, insertBatch).Error
	if err != nil && s.duplicate(err) {
		return errTaken
	}
	return err
}
