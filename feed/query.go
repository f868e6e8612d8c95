package feed

import (
	"context"
	"time"

	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const defaultLimit = 1000

// checked is the query with its limit.
func (q Query) checked() (Query, error) {
	switch q.Status {
	case "", Available, Complete, Failed:
	default:
		return q, invalid("Query.Status", "%q; give Available, Complete, Failed or nothing", string(q.Status))
	}
	if !sqlstore.Possible(q.Partition) {
		return q, notID("Query.Partition", q.Partition)
	}
	if q.Limit < 0 {
		return q, invalid("Query.Limit", "%d is below 0", q.Limit)
	}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	return q, nil
}

func notID(name, id string) error {
	return invalid(name, "%q is no ID: it has a zero byte or is not UTF-8; give an ID as it was returned", id)
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
		db = db.Where("status = ?", string(q.Status))
	}
	if q.After != "" {
		db = db.Where(order+" > ?", after)
	}
	return db
}

// Partition returns a partition, or [ErrNotFound].
func (s *Store) Partition(ctx context.Context, id string) (Partition, error) {
	var p Partition
	err := s.sql.Read(ctx, func(db *gorm.DB) error {
		row, err := findPartition(db, id)
		p = partitionOf(&row)
		return err
	})
	return p, wrapped(err, "partition %q", id)
}

func findPartition(db *gorm.DB, id string) (sqlstore.Partition, error) {
	if !sqlstore.Possible(id) {
		return sqlstore.Partition{}, ErrNotFound
	}
	return sqlstore.First[sqlstore.Partition](db.Where("id = ?", id))
}

// Partitions returns a page of partitions in the order of their IDs' bytes. The error is [ErrInvalid].
func (s *Store) Partitions(ctx context.Context, q Query) ([]Partition, error) {
	q, err := q.checked()
	if err != nil {
		return nil, err
	}
	if !sqlstore.Possible(q.After) {
		return nil, notID("Query.After", q.After)
	}
	var rows []sqlstore.Partition
	err = s.sql.Read(ctx, func(db *gorm.DB) error { return q.rows(db, "id", "id", q.After).Find(&rows).Error })
	if err != nil {
		return nil, wrapped(err, "list partitions")
	}
	return sqlstore.Map(rows, partitionOf), nil
}

// Item returns an item of a partition, or [ErrNotFound].
func (s *Store) Item(ctx context.Context, partition, id string) (Item, error) {
	var it Item
	err := s.sql.Read(ctx, func(db *gorm.DB) error {
		row, err := findItem(db, partition, id)
		it = itemOf(&row)
		return err
	})
	return it, wrapped(err, "item %q of partition %q", id, partition)
}

func findItem(tx *gorm.DB, partition, id string) (sqlstore.Item, error) {
	if !sqlstore.Possible(partition) || !sqlstore.Possible(id) {
		return sqlstore.Item{}, ErrNotFound
	}
	return sqlstore.First[sqlstore.Item](tx.Where("partition_id = ? AND id = ?", partition, id))
}

// Items returns a page of items, oldest first: in the order of their insertion, and those of one Insert as they were
// given. A page takes the database time that grows with all items of the partition, unless Gate and the status Available
// are given; for a large one give a high Limit. Errors are [ErrInvalid], and [ErrNotFound] where Query.After is no item.
func (s *Store) Items(ctx context.Context, q Query) ([]Item, error) {
	q, err := q.checked()
	if err != nil {
		return nil, err
	}
	if q.After != "" && q.Partition == "" {
		return nil, invalid("Query.After", "an item's ID is unique in its partition only; give Query.Partition")
	}
	var rows []sqlstore.Item
	err = s.sql.Read(ctx, func(db *gorm.DB) error {
		var after sqlstore.Item
		if q.After != "" {
			if after, err = findItem(db, q.Partition, q.After); err != nil {
				return err
			}
		}
		return q.rows(db, "partition_id", "seq", after.Seq).Find(&rows).Error
	})
	if err != nil {
		return nil, wrapped(err, "list items")
	}
	return sqlstore.Map(rows, itemOf), nil
}

// Counts returns how many items of a partition have which status, by gate, or [ErrNotFound].
func (s *Store) Counts(ctx context.Context, partition string) (map[int]Counts, error) {
	var rows []struct {
		Gate int
		Counts
	}
	count := func(s Status) string {
		return "COUNT(CASE WHEN status = '" + string(s) + "' THEN 1 END) AS " + string(s)
	}
	columns := []string{"gate", count(Available), count(Complete), count(Failed)}
	err := s.sql.Read(ctx, func(db *gorm.DB) error {
		if _, err := findPartition(db, partition); err != nil {
			return err
		}
		return db.Table("items").Select(columns).Where("partition_id = ?", partition).Group("gate").Find(&rows).Error
	})
	if err != nil {
		return nil, wrapped(err, "count the items of partition %q", partition)
	}
	counts := map[int]Counts{}
	for _, row := range rows {
		counts[row.Gate] = row.Counts
	}
	return counts, nil
}

// Steps returns how many steps of a partition's items are over, or [ErrNotFound]. Each [Response] that was saved ended one: the item
// passed to a higher gate, was Complete, or was to be processed again at its gate. From one call to the next this is how fast work
// goes, also while all items are still to be processed at other gates.
func (s *Store) Steps(ctx context.Context, partition string) (int64, error) {
	var n int64
	err := s.sql.Read(ctx, func(db *gorm.DB) error {
		if _, err := findPartition(db, partition); err != nil {
			return err
		}
		return db.Raw("SELECT COALESCE(SUM(step), 0) FROM items WHERE partition_id = ?", partition).Scan(&n).Error
	})
	return n, wrapped(err, "count the steps of partition %q", partition)
}

// Backlog is what the tables have that is not Complete.
type Backlog struct {
	// Ready are the Available items that may be processed now, also those that are being processed. Delayed wait for
	// their time, and Gated for their gate.
	Ready, Delayed, Gated int
	// Failed items hold the gates of BlockedPartitions until an operator retries or skips them.
	Failed, BlockedPartitions int
	// Oldest is how long ago the oldest of the items that are Ready was inserted; 0 where there is none.
	Oldest time.Duration
}

// Backlog counts all items that are not Complete, by an index, in time that grows with their number.
func (s *Store) Backlog(ctx context.Context) (Backlog, error) {
	var b Backlog
	const gated = "i.gate > p.gate"
	due := "(i.not_before IS NULL OR " + s.sql.Dialect.Past("i.not_before") + ")"
	count := func(condition string) string { return "COUNT(CASE WHEN " + condition + " THEN 1 END)" }
	ready := "NOT " + gated + " AND " + due
	var since, now sqlstore.RowTime
	err := s.sql.Read(ctx, func(db *gorm.DB) error {
		err := db.Raw("SELECT "+count(ready)+", "+count("NOT "+gated+" AND NOT "+due)+", "+count(gated)+", MIN(CASE WHEN "+ready+" THEN i.added END), "+
			s.sql.Dialect.Now+" FROM items i JOIN partitions p ON p.id = i.partition_id WHERE i.status = 'Available'").
			Row().Scan(&b.Ready, &b.Delayed, &b.Gated, &since, &now)
		if err != nil {
			return err
		}
		return db.Raw("SELECT COUNT(*), COUNT(DISTINCT partition_id) FROM items WHERE status = 'Failed'").Row().Scan(&b.Failed, &b.BlockedPartitions)
	})
	if err != nil {
		return Backlog{}, wrapped(err, "count the backlog")
	}
	if !since.IsZero() {
		b.Oldest = max(0, now.Sub(since.Time))
	}
	return b, nil
}

func partitionOf(r *sqlstore.Partition) Partition {
	p := Partition{ID: r.ID, Gate: r.Gate, Status: Status(r.Status), Epoch: r.Epoch, Version: r.Version, Sealed: r.Sealed}
	if r.Owner != nil && *r.Owner != "" {
		p.Owner = *r.Owner
		if r.Until != nil {
			p.Until = r.Until.UTC()
		}
	}
	return p
}

func itemOf(r *sqlstore.Item) Item {
	it := Item{
		ID: r.ID, Partition: r.PartitionID, Gate: r.Gate, Status: Status(r.Status), Attempt: r.Attempt, Data: r.Data,
		Version: r.Version, step: r.Step, seq: r.Seq, timer: r.Timer,
	}
	if r.Errors != nil {
		it.Errors = sqlstore.DecodeErrors(*r.Errors)
	}
	if r.History != nil {
		it.history = *r.History
	}
	if r.NotBefore != nil {
		it.NotBefore = r.NotBefore.UTC()
	}
	return it
}

// rowOf is an item as it is inserted.
func rowOf(it *Item) sqlstore.Item {
	row := sqlstore.Item{ID: it.ID, Gate: it.Gate, Data: it.Data, Timer: it.timer}
	if !it.NotBefore.IsZero() {
		row.NotBefore = &sqlstore.RowTime{Time: it.NotBefore}
	}
	return row
}
