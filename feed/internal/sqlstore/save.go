package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"
)

// Result is the new state of an item after an attempt.
type Result struct {
	Lease
	Item    string
	Version int64 // that was fetched
	Gate    int
	Status  string
	Attempt int
	Errors  *string
	History *string // nil: unchanged
	Data    []byte  // nil: unchanged
	Steps   int64   // 1: the step is over
	Delay   time.Duration
	Crashes *int64 // see Item
	// Locked is set by Save: the partition is locked by another transaction, so nothing was written.
	Locked bool
}

// DelayMS returns the delay in whole milliseconds, rounded up. 0 means none.
func (r *Result) DelayMS() int64 {
	return int64((r.Delay + time.Millisecond - 1) / time.Millisecond)
}

// MaxData is the maximum size of an item's data, in bytes: SQLite's limit, a little below PostgreSQL's.
const MaxData = 1_000_000_000

// Save writes results and returns which it wrote. It writes a result if the lease is still held and the item's version is the one that was fetched.
// The rows of the leases are locked until all results are written. Results of a partition that another transaction has locked are Locked, except if t
// is Patient: then Save waits for the row. Without results, it finds out whether the database saves at all.
func (s *Store) Save(ctx context.Context, t Terms, results []Result) ([]bool, error) {
	for i := range results {
		if n := len(results[i].Data); n > MaxData {
			return nil, Invalid("Response.Data", "has %d bytes; give at most %d", n, MaxData)
		}
	}
	if s.batch {
		return s.saveBatch(ctx, t, results)
	}
	var saved []bool
	err := s.Transact(ctx, func(tx *gorm.DB) (err error) {
		saved = make([]bool, len(results))
		ids, held := Map(leasesOf(results), func(l *Lease) string { return l.ID }), map[Lease]bool{}
		var rows []Partition
		if err = s.Dialect.lock(tx, ids...).Where("owner = ? AND id IN ?", t.Owner, ids).Order("id").Find(&rows).Error; err != nil {
			return err
		}
		for _, row := range rows {
			held[Lease{row.ID, row.Epoch}] = true
		}
		if len(results) == 0 {
			return tx.Exec("UPDATE items SET version = version WHERE 1 = 0").Error
		}
		now, err := s.Dialect.Clock(tx)
		if err != nil {
			return err
		}
		for i := range results {
			r := &results[i]
			if !held[r.Lease] {
				continue
			}
			set := map[string]any{
				"gate": r.Gate, "status": r.Status, "attempt": r.Attempt, "errors": r.Errors, "not_before": nil,
				"step": gorm.Expr("step + ?", r.Steps), "version": r.Version + 1, "crashes": r.Crashes,
			}
			if r.Data != nil {
				set["data"] = r.Data
			}
			if r.History != nil {
				set["history"] = *r.History
			}
			if r.Delay > 0 {
				set["not_before"] = now.Add(r.Delay)
			}
			done := tx.Model(&Item{}).Where("partition_id = ? AND id = ? AND version = ?", r.ID, r.Item, r.Version).Updates(set)
			if done.Error != nil {
				return done.Error
			}
			saved[i] = done.RowsAffected == 1
		}
		return nil
	})
	return saved, err
}

// leasesOf returns the leases of results, in the order of their IDs.
func leasesOf(results []Result) []Lease {
	leases := Map(results, func(r *Result) Lease { return r.Lease })
	slices.SortFunc(leases, func(a, b Lease) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Epoch, b.Epoch)) })
	return slices.Compact(leases)
}

// saveStatement is Save in one statement. It locks the rows of lease before it writes an item. It returns the numbers of the results that were not
// written, which are few, and the partitions that were not locked. The lock timeout, which ends with the statement, is for rows of items. PostgreSQL
// keeps one plan for all calls if its estimated cost is no higher than that of a plan for each call. So each set is an array, for which it assumes 10
// rows, and none is a series, for which it assumes 1,000.
const saveStatement = `WITH l AS MATERIALIZED (SELECT l.* FROM unnest(?::text[], ?::bigint[]) AS l(id, epoch), set_config('lock_timeout', ?, true)),
lease AS MATERIALIZED (
	SELECT p.id, p.epoch FROM partitions p JOIN l ON p.id = l.id AND p.epoch = l.epoch
	WHERE p.owner = ? ORDER BY p.id FOR NO KEY UPDATE OF p SKIP LOCKED),
r AS MATERIALIZED (SELECT * FROM unnest(?::text[], ?::text[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[], ?::text[], ?::bigint[],
	?::bytea[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[]) WITH ORDINALITY
	AS r(partition_id, id, version, gate, status, attempt, errors, steps, data, delay, epoch, history, crashes, n)),
done AS (UPDATE items i SET gate = r.gate, status = r.status, attempt = r.attempt, errors = r.errors,
	history = COALESCE(r.history, i.history), data = COALESCE(r.data, i.data), step = i.step + r.steps, crashes = r.crashes,
	not_before = CASE WHEN r.delay > 0 THEN clock_timestamp() + r.delay * interval '1 millisecond' END, version = i.version + 1
FROM r JOIN lease ON lease.id = r.partition_id AND lease.epoch = r.epoch
WHERE i.partition_id = r.partition_id AND i.id = r.id AND i.version = r.version
RETURNING r.n)
(SELECT n, '' AS id FROM r EXCEPT SELECT n, '' FROM done) UNION ALL (SELECT 0, id FROM l EXCEPT SELECT 0, id FROM lease)`

func (s *Store) saveBatch(ctx context.Context, t Terms, results []Result) ([]bool, error) {
	leases := leasesOf(results)
	statement := saveStatement
	if t.Patient {
		statement = strings.Replace(saveStatement, " SKIP LOCKED", "", 1)
	}
	var rows []struct {
		N  int64 // from 1
		ID string
	}
	err := s.retry(ctx, func() error {
		return s.DB.WithContext(ctx).Raw(statement,
			array(leases, func(l *Lease) string { return l.ID }), array(leases, func(l *Lease) int64 { return l.Epoch }),
			strconv.FormatInt(lockWait.Milliseconds(), 10), t.Owner,
			array(results, func(r *Result) string { return r.ID }), array(results, func(r *Result) string { return r.Item }),
			array(results, func(r *Result) int64 { return r.Version }), array(results, func(r *Result) int { return r.Gate }),
			array(results, func(r *Result) string { return r.Status }), array(results, func(r *Result) int { return r.Attempt }),
			array(results, func(r *Result) *string { return r.Errors }), array(results, func(r *Result) int64 { return r.Steps }),
			array(results, func(r *Result) []byte { return r.Data }), array(results, (*Result).DelayMS),
			array(results, func(r *Result) int64 { return r.Epoch }), array(results, func(r *Result) *string { return r.History }),
			array(results, func(r *Result) *int64 { return r.Crashes })).Find(&rows).Error
	})
	if err != nil {
		return nil, err
	}
	saved, locked := slices.Repeat([]bool{true}, len(results)), map[string]bool{}
	for _, row := range rows {
		if row.N > 0 {
			saved[row.N-1] = false
		} else {
			locked[row.ID] = !t.Patient // or the lease is lost, which a patient Save finds out
		}
	}
	for i := range results {
		results[i].Locked = locked[results[i].ID] && !saved[i]
	}
	return saved, nil
}
