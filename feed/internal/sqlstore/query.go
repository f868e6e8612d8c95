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
func (s Records) Partition(ctx context.Context, id string) (row Partition, err error) {
	if !possible(id) {
		return Partition{}, ErrNotFound
	}
	err = s.read(ctx, func(db *gorm.DB) error {
		row, err = first[Partition](db.Where("id = ?", id))
		return err
	})
	return row, err
}

// Partitions reads a page of partitions, by ID.
func (s Records) Partitions(ctx context.Context, q Query) (rows []Partition, err error) {
	if err := checkQuery(q.Partition, q.After); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(db *gorm.DB) error { return q.rows(db, "id", "id", q.After).Find(&rows).Error })
	return rows, err
}

// checkQuery refuses what no ID can be.
func checkQuery(partition, after string) error {
	for name, id := range map[string]string{"Query.Partition": partition, "Query.After": after} {
		if !possible(id) {
			return Invalid(name, "%q is no ID: it has a zero byte or is not UTF-8; give an ID as it was returned", id)
		}
	}
	return nil
}

// rows selects from a table with that column of partitions, in the order of another, from after on.
func (q Query) rows(db *gorm.DB, partition, order string, after any) *gorm.DB {
	db = db.Order(order).Limit(q.Limit)
	if q.Partition != "" {
		db = db.Where(partition+" = ?", q.Partition)
	}
	if q.Gate != nil {
		db = db.Where("gate = ?", *q.Gate)
	}
	if q.Status != "" {
		db = db.Where("status = ?", q.Status)
	}
	if q.After != "" {
		db = db.Where(order+" > ?", after)
	}
	return db
}

// Item reads an item.
func (s Records) Item(ctx context.Context, partition, id string) (row Item, err error) {
	err = s.read(ctx, func(db *gorm.DB) error {
		row, err = findItem(db, partition, id)
		return err
	})
	return row, err
}

// Items reads a page of items, oldest first. With after it needs a partition.
func (s Records) Items(ctx context.Context, q Query) (rows []Item, err error) {
	if err := checkQuery(q.Partition, ""); err != nil {
		return nil, err
	}
	var after Item
	if q.After != "" {
		if after, err = s.Item(ctx, q.Partition, q.After); err != nil {
			return nil, err
		}
	}
	err = s.read(ctx, func(db *gorm.DB) error { return q.rows(db, "partition_id", "seq", after.Seq).Find(&rows).Error })
	return rows, err
}

// Count is how many items of a gate have a status.
type Count struct {
	Gate   int
	Status string
	N      int
}

// Counts counts the items of a partition.
func (s Records) Counts(ctx context.Context, partition string) (rows []Count, err error) {
	if _, err := s.Partition(ctx, partition); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(db *gorm.DB) error {
		return db.Table("items").Select("gate, status, COUNT(*) AS n").Where("partition_id = ?", partition).Group("gate, status").Find(&rows).Error
	})
	return rows, err
}

// Steps is how many steps of a partition's items are over.
func (s Records) Steps(ctx context.Context, partition string) (n int64, err error) {
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
func (s Records) Backlog(ctx context.Context) (Backlog, error) {
	const gated = "i.gate > p.gate"
	due := "(i.not_before IS NULL OR " + s.Dialect.Past("i.not_before") + ")"
	count := func(condition string) string { return "COUNT(CASE WHEN " + condition + " THEN 1 END)" }
	ready := "NOT " + gated + " AND " + due
	var b Backlog
	var since, now RowTime
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
