package sqlstore

import "context"

// Query selects rows. What is zero does not restrict it, but for limit.
type Query struct {
	Partition string
	Gate      *int
	Status    string
	After     string
	Limit     int
}

// Partition reads a partition.
func (s *Store) Partition(ctx context.Context, id string) (Partition, error) {
	var rows []Partition
	if err := s.DB.WithContext(ctx).Where("id = ?", id).Limit(1).Find(&rows).Error; err != nil {
		return Partition{}, err
	}
	if len(rows) == 0 {
		return Partition{}, ErrNotFound
	}
	return rows[0], nil
}

// Partitions reads a page of partitions, by ID.
func (s *Store) Partitions(ctx context.Context, q Query) (rows []Partition, err error) {
	db := s.DB.WithContext(ctx).Order("id").Limit(q.Limit)
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
	err = db.Find(&rows).Error
	return rows, err
}

// Item reads an item.
func (s *Store) Item(ctx context.Context, partition, id string) (Item, error) {
	return findItem(s.DB.WithContext(ctx), partition, id)
}

// Items reads a page of items, oldest first. With after it needs a partition.
func (s *Store) Items(ctx context.Context, q Query) (rows []Item, err error) {
	db := s.DB.WithContext(ctx).Order("seq").Limit(q.Limit)
	if q.After != "" {
		after, err := s.Item(ctx, q.Partition, q.After)
		if err != nil {
			return nil, err
		}
		db = db.Where("seq > ?", after.Seq)
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
	err = db.Find(&rows).Error
	return rows, err
}

// Count is how many items of a gate have a status.
type Count struct {
	Gate   int
	Status string
	N      int
}

// Counts counts the items of a partition.
func (s *Store) Counts(ctx context.Context, partition string) (rows []Count, err error) {
	if _, err := s.Partition(ctx, partition); err != nil {
		return nil, err
	}
	err = s.DB.WithContext(ctx).Table("items").Select("gate, status, COUNT(*) AS n").
		Where("partition_id = ?", partition).Group("gate, status").Find(&rows).Error
	return rows, err
}
