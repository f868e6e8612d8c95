package feed

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"
)

// result is what an item is to be after an attempt.
type result struct {
	lease
	item    Item // as it was fetched, with the attempt counted
	gate    int
	status  Status
	attempt int
	errors  []string
	data    []byte // nil: unchanged
	stepped bool   // the step is over
	delay   time.Duration
}

func (r *result) steps() int64 {
	if r.stepped {
		return 1
	}
	return 0
}

// delayMS is the delay in whole milliseconds, rounded up; 0: none.
func (r *result) delayMS() int64 {
	return int64((r.delay + time.Millisecond - 1) / time.Millisecond)
}

// save writes results and tells which it wrote. Each write needs that the lease is still held, whose row is locked
// until all are written, and that the item's version is the one that was fetched.
func (s *Store) save(ctx context.Context, t terms, results []result) ([]bool, error) {
	if s.batch {
		return s.saveBatch(ctx, t, results)
	}
	var saved []bool
	err := s.write(ctx, func(tx *gorm.DB) error {
		saved = make([]bool, len(results))
		held, err := s.lockHeld(tx, t, results)
		if err != nil {
			return err
		}
		for i := range results {
			r := &results[i]
			if !held[r.lease] {
				continue
			}
			set := map[string]any{
				"gate": r.gate, "status": r.status, "attempt": r.attempt, "errors": encodeErrors(r.errors), "not_before": nil,
				"step": r.item.step + r.steps(), "version": r.item.Version + 1,
			}
			if r.data != nil {
				set["data"] = r.data
			}
			if ms := r.delayMS(); ms > 0 {
				set["not_before"] = gorm.Expr(s.dialect.later, ms)
			}
			done := tx.Table("items").Where("partition_id = ? AND id = ? AND version = ?", r.id, r.item.ID, r.item.Version).Updates(set)
			if done.Error != nil {
				return done.Error
			}
			saved[i] = done.RowsAffected == 1
		}
		return nil
	})
	return saved, err
}

// lockHeld locks the partitions of results, in the order of their IDs, and tells which leases are held.
func (s *Store) lockHeld(tx *gorm.DB, t terms, results []result) (map[lease]bool, error) {
	held := map[lease]bool{}
	for _, r := range results {
		held[r.lease] = false
	}
	leases := make([]lease, 0, len(held))
	for l := range held {
		leases = append(leases, l)
	}
	slices.SortFunc(leases, func(a, b lease) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.epoch, b.epoch)) })
	if err := s.dialect.begin(tx); err != nil {
		return nil, err
	}
	for _, l := range leases {
		p, err := s.dialect.lock(tx, l.id)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		default:
			held[l] = p.ownedBy(t.owner, l.epoch)
		}
	}
	return held, nil
}

// saveStatement is save as one statement. The rows of lease are locked before an item is written.
const saveStatement = `WITH lease AS MATERIALIZED (
	SELECT p.id, p.epoch FROM partitions p JOIN unnest($1::text[], $2::bigint[]) AS l(id, epoch) ON p.id = l.id AND p.epoch = l.epoch
	WHERE p.owner = $3 ORDER BY p.id FOR NO KEY UPDATE OF p)
UPDATE items i SET gate = r.gate, status = r.status, attempt = r.attempt, errors = r.errors, step = i.step + r.steps,
	data = CASE WHEN r.keep THEN i.data ELSE r.data END,
	not_before = CASE WHEN r.delay > 0 THEN clock_timestamp() + r.delay * interval '1 millisecond' END, version = i.version + 1
FROM unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::text[], $11::bigint[],
	$12::boolean[], $13::bytea[], $14::bigint[], $15::bigint[]) AS r(partition_id, id, version, gate, status, attempt, errors, steps, keep, data, delay, epoch)
JOIN lease ON lease.id = r.partition_id AND lease.epoch = r.epoch
WHERE i.partition_id = r.partition_id AND i.id = r.id AND i.version = r.version
RETURNING i.partition_id, i.id, r.epoch`

// columns are results as arrays, one for each parameter of saveStatement.
type columns struct {
	partition, id, status []string
	version, gate, steps  []int64
	epoch                 []int64
	attempt, delay        []int64
	errors                []*string
	keep                  []bool
	data                  [][]byte
	heldIDs               []string
	heldEpochs            []int64
}

func columnsOf(results []result) *columns {
	c := &columns{}
	seen := map[lease]bool{}
	for i := range results {
		r := &results[i]
		if !seen[r.lease] {
			seen[r.lease] = true
			c.heldIDs, c.heldEpochs = append(c.heldIDs, r.id), append(c.heldEpochs, r.epoch)
		}
		c.partition, c.id, c.status = append(c.partition, r.id), append(c.id, r.item.ID), append(c.status, string(r.status))
		c.epoch = append(c.epoch, r.epoch)
		c.version, c.gate, c.steps = append(c.version, r.item.Version), append(c.gate, int64(r.gate)), append(c.steps, r.steps())
		c.attempt, c.delay = append(c.attempt, int64(r.attempt)), append(c.delay, r.delayMS())
		c.errors, c.keep, c.data = append(c.errors, encodeErrors(r.errors)), append(c.keep, r.data == nil), append(c.data, r.data)
	}
	return c
}

func (s *Store) saveBatch(ctx context.Context, t terms, results []result) (saved []bool, err error) {
	type key struct {
		lease
		item string
	}
	index := make(map[key]int, len(results))
	for i := range results {
		index[key{results[i].lease, results[i].item.ID}] = i
	}
	c := columnsOf(results)
	err = s.retry(ctx, func() (err error) {
		saved = make([]bool, len(results))
		rows, err := s.db.WithContext(ctx).Statement.ConnPool.QueryContext(ctx, saveStatement, c.heldIDs, c.heldEpochs, t.owner,
			c.partition, c.id, c.version, c.gate, c.status, c.attempt, c.errors, c.steps, c.keep, c.data, c.delay, c.epoch)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var k key
			if err := rows.Scan(&k.id, &k.item, &k.epoch); err != nil {
				return err
			}
			saved[index[k]] = true
		}
		return rows.Err()
	})
	return saved, err
}
