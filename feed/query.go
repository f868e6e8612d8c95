package feed

import (
	"context"
	"fmt"
)

// Partition returns a partition, or [ErrNotFound].
func (s *Store) Partition(ctx context.Context, id string) (Partition, error) {
	var rows []partitionRow
	err := s.db.WithContext(ctx).Where("id = ?", id).Limit(1).Find(&rows).Error
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Partition{}, fmt.Errorf("feed: partition %q: %w", id, err)
	}
	return rows[0].partition(), nil
}

// Partitions returns a page of partitions in the order of their IDs' bytes. The error is [ErrInvalid].
func (s *Store) Partitions(ctx context.Context, q Query) ([]Partition, error) {
	q, err := q.check()
	if err != nil {
		return nil, err
	}
	db := s.db.WithContext(ctx).Order("id").Limit(q.Limit)
	if q.Partition != "" {
		db = db.Where("id = ?", q.Partition)
	}
	if q.Gate != nil {
		db = db.Where("gate = ?", *q.Gate)
	}
	if q.Status != "" {
		db = db.Where("status = ?", q.Status)
	}
	if q.After != "" {
		db = db.Where("id > ?", q.After)
	}
	var rows []partitionRow
	if err := db.Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("feed: list partitions: %w", err)
	}
	list := make([]Partition, len(rows))
	for i := range rows {
		list[i] = rows[i].partition()
	}
	return list, nil
}

// Item returns an item of a partition, or [ErrNotFound].
func (s *Store) Item(ctx context.Context, partition, id string) (Item, error) {
	row, err := findItem(s.db.WithContext(ctx), partition, id)
	if err != nil {
		return Item{}, fmt.Errorf("feed: item %q of partition %q: %w", id, partition, err)
	}
	return row.item(), nil
}

// Items returns a page of items, oldest first: in the order of their insertion, and those of one Insert as they were
// given. Errors are [ErrInvalid], and [ErrNotFound] where Query.After is no item.
func (s *Store) Items(ctx context.Context, q Query) ([]Item, error) {
	q, err := q.check()
	if err != nil {
		return nil, err
	}
	db := s.db.WithContext(ctx).Order("seq").Limit(q.Limit)
	if q.After != "" {
		if q.Partition == "" {
			return nil, invalid("Query.After", "an item's ID is unique in its partition only; give Query.Partition")
		}
		after, err := s.Item(ctx, q.Partition, q.After)
		if err != nil {
			return nil, err
		}
		db = db.Where("seq > ?", after.seq)
	}
	if q.Partition != "" {
		db = db.Where("partition_id = ?", q.Partition)
	}
	if q.Gate != nil {
		db = db.Where("gate = ?", *q.Gate)
	}
	if q.Status != "" {
		db = db.Where("status = ?", q.Status)
	}
	var rows []itemRow
	if err := db.Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("feed: list items: %w", err)
	}
	list := make([]Item, len(rows))
	for i := range rows {
		list[i] = rows[i].item()
	}
	return list, nil
}

// Counts returns how many items of a partition have which status, by gate, or [ErrNotFound].
func (s *Store) Counts(ctx context.Context, partition string) (map[int]Counts, error) {
	if _, err := s.Partition(ctx, partition); err != nil {
		return nil, err
	}
	var rows []struct {
		Gate   int
		Status Status
		N      int
	}
	err := s.db.WithContext(ctx).Table("items").Select("gate, status, COUNT(*) AS n").
		Where("partition_id = ?", partition).Group("gate, status").Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("feed: count the items of partition %q: %w", partition, err)
	}
	counts := map[int]Counts{}
	for _, row := range rows {
		c := counts[row.Gate]
		switch row.Status {
		case Available:
			c.Available = row.N
		case Complete:
			c.Complete = row.N
		case Failed:
			c.Failed = row.N
		}
		counts[row.Gate] = c
	}
	return counts, nil
}
