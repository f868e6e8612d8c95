package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"
)

// Result is what an item is to be after an attempt.
type Result struct {
	Lease
	Item    string
	Version int64 // as it was fetched
	Gate    int
	Status  string
	Attempt int
	Errors  []string
	History *string // nil: unchanged
	Data    []byte  // nil: unchanged
	Stepped bool    // the step is over
	Delay   time.Duration
}

// Steps is how many steps the attempt ended.
func (r *Result) Steps() int64 {
	if r.Stepped {
		return 1
	}
	return 0
}

// DelayMS is the delay in whole milliseconds, rounded up; 0: none.
func (r *Result) DelayMS() int64 {
	return int64((r.Delay + time.Millisecond - 1) / time.Millisecond)
}

// MaxData is how many bytes of data an item may have: SQLite's limit, a little below PostgreSQL's.
const MaxData = 1_000_000_000

// Save writes results and tells which it wrote. Each write needs that the lease is still held, whose row is locked
// until all are written, and that the item's version is the one that was fetched.
func (s *Store) Save(ctx context.Context, t Terms, results []Result) ([]bool, error) {
	for i := range results {
		if n := len(results[i].Data); n > MaxData {
			return nil, invalid("Response.Data", "has %d bytes; give at most %d", n, MaxData)
		}
	}
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
			if !held[r.Lease] {
				continue
			}
			set := map[string]any{
				"gate": r.Gate, "status": r.Status, "attempt": r.Attempt, "errors": EncodeErrors(r.Errors), "not_before": nil,
				"step": gorm.Expr("step + ?", r.Steps()), "version": r.Version + 1,
			}
			if r.Data != nil {
				set["data"] = r.Data
			}
			if r.History != nil {
				set["history"] = *r.History
			}
			if r.Delay > 0 {
				if set["not_before"], err = s.later(tx, time.Duration(r.DelayMS())*time.Millisecond); err != nil {
					return err
				}
			}
			done := tx.Table("items").Where("partition_id = ? AND id = ? AND version = ?", r.ID, r.Item, r.Version).Updates(set)
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
func (s *Store) lockHeld(tx *gorm.DB, t Terms, results []Result) (map[Lease]bool, error) {
	held := map[Lease]bool{}
	for _, r := range results {
		held[r.Lease] = false
	}
	leases := make([]Lease, 0, len(held))
	for l := range held {
		leases = append(leases, l)
	}
	slices.SortFunc(leases, func(a, b Lease) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Epoch, b.Epoch)) })
	if err := s.Dialect.begin(tx); err != nil {
		return nil, err
	}
	for _, l := range leases {
		p, err := s.Dialect.lock(tx, l.ID)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		default:
			held[l] = p.OwnedBy(t.Owner, l.Epoch)
		}
	}
	return held, nil
}

// saveStatement is save as one statement. The rows of lease are locked before an item is written.
const saveStatement = `WITH lease AS MATERIALIZED (
	SELECT p.id, p.epoch FROM partitions p JOIN unnest($1::text[], $2::bigint[]) AS l(id, epoch) ON p.id = l.id AND p.epoch = l.epoch
	WHERE p.owner = $3 ORDER BY p.id FOR NO KEY UPDATE OF p)
UPDATE items i SET gate = r.gate, status = r.status, attempt = r.attempt, errors = r.errors, history = COALESCE(r.history, i.history), step = i.step + r.steps,
	data = CASE WHEN r.keep THEN i.data ELSE r.data END,
	not_before = CASE WHEN r.delay > 0 THEN clock_timestamp() + r.delay * interval '1 millisecond' END, version = i.version + 1
FROM unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::text[], $11::bigint[],
	$12::boolean[], $13::bytea[], $14::bigint[], $15::bigint[], $16::text[])
	AS r(partition_id, id, version, gate, status, attempt, errors, steps, keep, data, delay, epoch, history)
JOIN lease ON lease.id = r.partition_id AND lease.epoch = r.epoch
WHERE i.partition_id = r.partition_id AND i.id = r.id AND i.version = r.version
RETURNING i.partition_id, i.id, r.epoch`

// columns are results as arrays, one for each parameter of saveStatement.
type columns struct {
	partition, id, status []string
	version, gate, steps  []int64
	epoch                 []int64
	attempt, delay        []int64
	errors, history       []*string
	keep                  []bool
	data                  [][]byte
	heldIDs               []string
	heldEpochs            []int64
}

func columnsOf(results []Result) *columns {
	c := &columns{}
	seen := map[Lease]bool{}
	for i := range results {
		r := &results[i]
		if !seen[r.Lease] {
			seen[r.Lease] = true
			c.heldIDs, c.heldEpochs = append(c.heldIDs, r.ID), append(c.heldEpochs, r.Epoch)
		}
		c.partition, c.id, c.status = append(c.partition, r.ID), append(c.id, r.Item), append(c.status, r.Status)
		c.epoch = append(c.epoch, r.Epoch)
		c.version, c.gate, c.steps = append(c.version, r.Version), append(c.gate, int64(r.Gate)), append(c.steps, r.Steps())
		c.attempt, c.delay = append(c.attempt, int64(r.Attempt)), append(c.delay, r.DelayMS())
		c.errors, c.keep, c.data = append(c.errors, EncodeErrors(r.Errors)), append(c.keep, r.Data == nil), append(c.data, r.Data)
		c.history = append(c.history, r.History)
	}
	return c
}

func (s *Store) saveBatch(ctx context.Context, t Terms, results []Result) (saved []bool, err error) {
	type key struct {
		Lease
		item string
	}
	index := make(map[key]int, len(results))
	for i := range results {
		index[key{results[i].Lease, results[i].Item}] = i
	}
	c := columnsOf(results)
	err = s.retry(ctx, func() (err error) {
		saved = make([]bool, len(results))
		rows, err := s.DB.WithContext(ctx).Statement.ConnPool.QueryContext(ctx, saveStatement, c.heldIDs, c.heldEpochs, t.Owner,
			c.partition, c.id, c.version, c.gate, c.status, c.attempt, c.errors, c.steps, c.keep, c.data, c.delay, c.epoch, c.history)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var k key
			if err := rows.Scan(&k.ID, &k.item, &k.Epoch); err != nil {
				return err
			}
			saved[index[k]] = true
		}
		return rows.Err()
	})
	return saved, err
}
