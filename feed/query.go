package feed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const defaultLimit = 1000

// checked returns the query with its limit, or an error for an invalid field.
func (q Query) checked() (Query, error) {
	known := slices.Contains([]Status{"", Available, Complete, Failed}, q.Status)
	err := cmp.Or(
		check(known, "Query.Status", "%q; give Available, Complete, Failed or nothing", string(q.Status)),
		checkPossible("Query.Partition", q.Partition), check(q.Limit >= 0, "Query.Limit", "%d is below 0", q.Limit),
	)
	q.Limit = cmp.Or(q.Limit, defaultLimit)
	return q, err
}

func checkPossible(name, id string) error {
	return check(sqlstore.Possible(id), name, "%q is no ID: it has a zero byte or is not UTF-8; give an ID as it was returned", id)
}

// rows selects the rows that match the nonzero fields of like, in the order of a column, after the value after.
func (q Query) rows(db *gorm.DB, like any, order string, after any) *gorm.DB {
	db = db.Where(like).Order(order).Limit(q.Limit)
	if q.Gate != nil {
		db = db.Where("gate = ?", *q.Gate)
	}
	if q.After != "" {
		db = db.Where(order+" > ?", after)
	}
	return db
}

// read runs statements that only read. The error names the operation.
func read[T any](ctx context.Context, s *Store, what string, f func(db *gorm.DB) (T, error)) (found T, err error) {
	err = s.sql.Read(ctx, func(db *gorm.DB) (err error) {
		found, err = f(db)
		return err
	})
	return found, wrapped(err, "%s", what)
}

// Partition returns a partition, or [ErrNotFound].
func (s *Store) Partition(ctx context.Context, id string) (Partition, error) {
	row, err := read(ctx, s, fmt.Sprintf("partition %q", id), func(db *gorm.DB) (sqlstore.Partition, error) { return findPartition(db, id) })
	return partitionOf(&row), err
}

func findPartition(db *gorm.DB, id string) (sqlstore.Partition, error) {
	return sqlstore.First[sqlstore.Partition](db, "id = ?", id)
}

// Partitions returns a page of partitions, ordered by the bytes of their IDs. The error is [ErrInvalid].
func (s *Store) Partitions(ctx context.Context, q Query) ([]Partition, error) {
	q, err := q.checked()
	if err = cmp.Or(err, checkPossible("Query.After", q.After)); err != nil {
		return nil, err
	}
	rows, err := read(ctx, s, "list partitions", func(db *gorm.DB) (rows []sqlstore.Partition, err error) {
		err = q.rows(db, &sqlstore.Partition{ID: q.Partition, Status: string(q.Status)}, "id", q.After).Find(&rows).Error
		return rows, err
	})
	return sqlstore.Map(rows, partitionOf), err
}

// Item returns an item of a partition, or [ErrNotFound].
func (s *Store) Item(ctx context.Context, partition, id string) (Item, error) {
	row, err := read(ctx, s, fmt.Sprintf("item %q of partition %q", id, partition),
		func(db *gorm.DB) (sqlstore.Item, error) { return findItem(db, partition, id) })
	return itemOf(&row), err
}

func findItem(tx *gorm.DB, partition, id string) (sqlstore.Item, error) {
	return sqlstore.First[sqlstore.Item](tx, "partition_id = ? AND id = ?", partition, id)
}

// Items returns a page of items in the order of their insertion; items of one Insert are in the order in which they were given. The time of the
// query grows with the number of items in the partition, for each page, unless Gate is given and Status is Available. So set a high Limit for a
// large partition. Errors are [ErrInvalid], and [ErrNotFound] if Query.After names no item.
func (s *Store) Items(ctx context.Context, q Query) ([]Item, error) {
	q, err := q.checked()
	if err != nil {
		return nil, err
	}
	if q.After != "" && q.Partition == "" {
		return nil, invalid("Query.After", "an item's ID is unique in its partition only; give Query.Partition")
	}
	rows, err := read(ctx, s, "list items", func(db *gorm.DB) (rows []sqlstore.Item, err error) {
		var after sqlstore.Item
		if q.After != "" {
			if after, err = findItem(db, q.Partition, q.After); err != nil {
				return nil, err
			}
		}
		err = q.rows(db, &sqlstore.Item{PartitionID: q.Partition, Status: string(q.Status)}, "seq", after.Seq).Find(&rows).Error
		return rows, err
	})
	return sqlstore.Map(rows, itemOf), err
}

// Counts returns the numbers of items of a partition by gate and status. The error is [ErrNotFound].
func (s *Store) Counts(ctx context.Context, partition string) (map[int]Counts, error) {
	counts, _, err := countsUpTo(ctx, s, partition, 0)
	return counts, err
}

// CountsUpTo is like [Store.Counts], but takes a short time even for a large partition. It reads at most most items of each status. If the partition
// has more than most items, it counts only Available and Failed items at the lowest gates, and more is true.
func (s *Store) CountsUpTo(ctx context.Context, partition string, most int) (counts map[int]Counts, more bool, err error) {
	if most < 1 {
		return nil, false, invalid("most", "%d is below 1", most)
	}
	return countsUpTo(ctx, s, partition, most)
}

// countsUpTo counts all items if most is 0.
func countsUpTo(ctx context.Context, s *Store, partition string, most int) (counts map[int]Counts, more bool, err error) {
	count := func(s Status) string { return countIf("status = '"+string(s)+"'") + " AS " + string(s) }
	columns := []string{"gate", count(Available), count(Complete), count(Failed)}
	counts, err = read(ctx, s, fmt.Sprintf("count the items of partition %q", partition), func(db *gorm.DB) (map[int]Counts, error) {
		if _, err := findPartition(db, partition); err != nil {
			return nil, err
		}
		items := func() *gorm.DB { return db.Table("items").Where("partition_id = ?", partition) }
		counted := items()
		if most > 0 {
			var first int64
			if err := db.Table("(?) AS first", items().Select("id").Limit(most+1)).Count(&first).Error; err != nil {
				return nil, err
			}
			if more = first > int64(most); more {
				lowest := func(s Status) *gorm.DB {
					return items().Where("status = '" + string(s) + "'").Select("gate, status").Order("gate").Limit(most)
				}
				counted = db.Table("(SELECT * FROM (?) a UNION ALL SELECT * FROM (?) f) lowest", lowest(Available), lowest(Failed))
			}
		}
		var rows []struct {
			Gate int
			Counts
		}
		err := counted.Select(columns).Group("gate").Find(&rows).Error
		counts := map[int]Counts{}
		for _, row := range rows {
			counts[row.Gate] = row.Counts
		}
		return counts, err
	})
	return counts, more, err
}

// Steps returns the number of steps that a partition's items have completed, or [ErrNotFound]. Each [Response] that was saved completed one: the
// item moved to a higher gate, became Complete, or stays at its gate to be processed again. The difference between two calls is the throughput,
// even while no item is Complete yet.
func (s *Store) Steps(ctx context.Context, partition string) (int64, error) {
	return read(ctx, s, fmt.Sprintf("count the steps of partition %q", partition), func(db *gorm.DB) (n int64, err error) {
		if _, err := findPartition(db, partition); err != nil {
			return 0, err
		}
		err = db.Raw("SELECT COALESCE(SUM(step), 0) FROM items WHERE partition_id = ?", partition).Scan(&n).Error
		return n, err
	})
}

// Backlog counts the items that are not Complete.
type Backlog struct {
	// Ready counts the Available items that may be processed now, including those in progress. Delayed counts those that wait for their
	// NotBefore, and Gated those above the gate of their partition.
	Ready, Delayed, Gated int
	// Passed counts the Available items below the gate of their partition, which another program inserted there. No watcher processes them.
	Passed int
	// Failed counts Failed items. BlockedPartitions counts partitions that stay at their gate until an operator retries or skips them.
	Failed, BlockedPartitions int
	// Oldest is the time since the oldest of the Ready items was inserted. It is 0 if there is none.
	Oldest time.Duration
}

// Backlog counts all items that are not Complete. It uses an index; its time grows with their number.
func (s *Store) Backlog(ctx context.Context) (Backlog, error) {
	const gated = "i.gate > p.gate"
	due := "(i.not_before IS NULL OR " + s.sql.Dialect.Past("i.not_before") + ")"
	ready := "i.gate = p.gate AND " + due
	return read(ctx, s, "count the backlog", func(db *gorm.DB) (b Backlog, err error) {
		var since, now sqlstore.RowTime
		err = sqlstore.ScanRow(db.Raw("SELECT "+countIf(ready)+", "+countIf("i.gate = p.gate AND NOT "+due)+", "+countIf(gated)+", "+
			countIf("i.gate < p.gate")+", MIN(CASE WHEN "+ready+" THEN i.added END), "+
			s.sql.Dialect.Now+" FROM items i JOIN partitions p ON p.id = i.partition_id WHERE i.status = 'Available'"),
			&b.Ready, &b.Delayed, &b.Gated, &b.Passed, &since, &now)
		if err == nil {
			err = sqlstore.ScanRow(db.Raw("SELECT COUNT(*), COUNT(DISTINCT partition_id) FROM items WHERE status = 'Failed'"), &b.Failed, &b.BlockedPartitions)
		}
		if !since.IsZero() {
			b.Oldest = max(0, now.Sub(since.Time))
		}
		return b, err
	})
}

func countIf(condition string) string { return "COUNT(CASE WHEN " + condition + " THEN 1 END)" }

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
		Errors:  decodeList(r.Errors, func(text string) string { return text }),
		Version: r.Version, step: r.Step, history: r.History, seq: r.Seq, timer: r.Timer,
	}
	if r.NotBefore != nil {
		it.NotBefore = r.NotBefore.UTC()
	}
	return it
}
