package sqlstore

import (
	"context"
	"time"

	"gorm.io/gorm"
)

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
	if !possible(id) {
		return Partition{}, ErrNotFound
	}
	var rows []Partition
	if err := s.read(ctx, func(db *gorm.DB) error { return db.Where("id = ?", id).Limit(1).Find(&rows).Error }); err != nil {
		return Partition{}, err
	}
	if len(rows) == 0 {
		return Partition{}, ErrNotFound
	}
	return rows[0], nil
}

// Partitions reads a page of partitions, by ID.
func (s *Store) Partitions(ctx context.Context, q Query) (rows []Partition, err error) {
	if err := checkQuery(q.Partition, q.After); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(db *gorm.DB) error { return q.partitions(db).Find(&rows).Error })
	return rows, err
}

// checkQuery refuses what no ID can be.
func checkQuery(partition, after string) error {
	for name, id := range map[string]string{"Query.Partition": partition, "Query.After": after} {
		if !possible(id) {
			return invalid(name, "%q is no ID: it has a zero byte or is not UTF-8; give an ID as it was returned", id)
		}
	}
	return nil
}

func (q Query) partitions(db *gorm.DB) *gorm.DB {
	db = db.Order("id").Limit(q.Limit)
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
	return db
}

// Item reads an item.
func (s *Store) Item(ctx context.Context, partition, id string) (row Item, err error) {
	err = s.read(ctx, func(db *gorm.DB) error {
		row, err = findItem(db, partition, id)
		return err
	})
	return row, err
}

// Items reads a page of items, oldest first. With after it needs a partition.
func (s *Store) Items(ctx context.Context, q Query) (rows []Item, err error) {
	if err := checkQuery(q.Partition, ""); err != nil {
		return nil, err
	}
	var after Item
	if q.After != "" {
		if after, err = s.Item(ctx, q.Partition, q.After); err != nil {
			return nil, err
		}
	}
	err = s.read(ctx, func(db *gorm.DB) error { return q.items(db, after.Seq).Find(&rows).Error })
	return rows, err
}

func (q Query) items(db *gorm.DB, after int64) *gorm.DB {
	db = db.Order("seq").Limit(q.Limit)
	if q.After != "" {
		db = db.Where("seq > ?", after)
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
	return db
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
	err = s.read(ctx, func(db *gorm.DB) error {
		return db.Table("items").Select("gate, status, COUNT(*) AS n").Where("partition_id = ?", partition).Group("gate, status").Find(&rows).Error
	})
	return rows, err
}

// Steps is how many steps of a partition's items are over.
func (s *Store) Steps(ctx context.Context, partition string) (n int64, err error) {
	if _, err := s.Partition(ctx, partition); err != nil {
		return 0, err
	}
	err = s.read(ctx, func(db *gorm.DB) error {
		return db.Raw("SELECT COALESCE(SUM(step), 0) FROM items WHERE partition_id = ?", partition).Scan(&n).Error
	})
	return n, err
}

// Backlog is what is not Complete.
type Backlog struct {
	Ready, Delayed, Gated, Failed, BlockedPartitions int
	Oldest                                           time.Duration
}

// Backlog counts it.
func (s *Store) Backlog(ctx context.Context) (Backlog, error) {
	const gated = "i.gate > p.gate"
	due := "(i.not_before IS NULL OR " + s.Dialect.Past("i.not_before") + ")"
	count := func(condition string) string { return "COUNT(CASE WHEN " + condition + " THEN 1 END)" }
	ready := "NOT " + gated + " AND " + due
	var b Backlog
	var since, now dbTime
	err := s.read(ctx, func(db *gorm.DB) error {
		err := db.Raw("SELECT "+count(ready)+", "+count("NOT "+gated+" AND NOT "+due)+", "+count(gated)+", MIN(CASE WHEN "+ready+" THEN i.added END), "+
			s.Dialect.Now+" FROM items i JOIN partitions p ON p.id = i.partition_id WHERE i.status = 'Available'").
			Row().Scan(&b.Ready, &b.Delayed, &b.Gated, &since, &now)
		if err != nil {
			return err
		}
		return db.Raw("SELECT COUNT(*), COUNT(DISTINCT partition_id) FROM items WHERE status = 'Failed'").Row().Scan(&b.Failed, &b.BlockedPartitions)
	})
	if err != nil {
		return Backlog{}, err
	}
	if !since.IsZero() {
		b.Oldest = max(0, now.Sub(since.Time))
	}
	return b, nil
}
