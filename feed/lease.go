package feed

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const (
	// leaseBatch is how many leases are taken in one transaction, leaseBatchMost where that is one statement.
	leaseBatch, leaseBatchMost = 64, 256
	// renewBatch is how many are renewed by one statement.
	renewBatch = 500
	// claimWait is how long a released partition waits for the watcher that claimed it.
	claimWait = time.Second
)

// lease is the hold on a partition: whoever has both owner and epoch may write its items.
type lease struct {
	id    string
	epoch int64
}

// terms are what a watcher leases partitions for.
type terms struct {
	owner  string
	length time.Duration
	// manual: gates advance by a call only. autoClose: what is sealed and done is closed.
	manual, autoClose bool
}

// free is the condition on which a partition may be leased: nobody holds it, or only until a time that has passed.
func (d *dialect) free() string {
	return "(((p.owner IS NULL OR p.owner = '') AND (p.claimant IS NULL OR p.claimant = '' OR p.claimant = ?))" +
		" OR p.until IS NULL OR " + d.past("p.until") + ")"
}

// work is the condition that there is something to do for a partition: an item whose time has come, or a gate
// that is drained and not yet settled.
func (d *dialect) work(t terms) string {
	const at = "SELECT 1 FROM items i WHERE i.partition_id = p.id"
	settle := "EXISTS (" + at + " AND i.status = 'Failed' AND i.gate = p.gate)"
	if !t.manual {
		settle += " OR EXISTS (" + at + " AND i.status = 'Available' AND i.gate > p.gate)" +
			" OR EXISTS (" + at + " AND i.status = 'Failed' AND i.gate > p.gate)"
	}
	if t.autoClose {
		settle += " OR (p.sealed = ? AND NOT EXISTS (" + at + " AND i.status = 'Failed')" +
			" AND NOT EXISTS (" + at + " AND i.status = 'Available'))"
	}
	return "(EXISTS (" + at + " AND i.status = 'Available' AND i.gate = p.gate AND (i.not_before IS NULL OR " + d.past("i.not_before") + "))" +
		" OR (NOT EXISTS (" + at + " AND i.status = 'Available' AND i.gate = p.gate) AND (" + settle + ")))"
}

// workArgs are the parameters of work.
func (t terms) workArgs() []any {
	if t.autoClose {
		return []any{true}
	}
	return nil
}

// candidates are at most n partitions that may be leased and have work, the one that waits longest first.
func (s *Store) candidates(ctx context.Context, t terms, n int) (rows []partitionRow, err error) {
	err = s.db.WithContext(ctx).Table("partitions p").Select("p.*").Where("p.status = 'Available'").
		Where(s.dialect.free(), t.owner).Where(s.dialect.work(t), t.workArgs()...).
		Order("p.until" + s.dialect.nullsFirst + ", p.id").Limit(n).Find(&rows).Error
	return rows, err
}

// waiting is how many partitions could be leased now, up to most.
func (s *Store) waiting(ctx context.Context, t terms, most int) (int, error) {
	rows, err := s.candidates(ctx, t, most)
	return len(rows), err
}

// acquire leases at most n partitions that have work. Of two watchers that want the same one the first to write it
// has it: the other's version is then an old one. What the watcher holds itself is left to the renewal, also when that
// is late: only a lease that it has in the table and does not know of, because the answer got lost, it takes again.
func (s *Store) acquire(ctx context.Context, t terms, n int, holds map[string]bool) ([]lease, error) {
	if s.batch {
		return s.acquireBatch(ctx, t, n, holds)
	}
	rows, err := s.candidates(ctx, t, min(n, leaseBatch))
	rows = slices.DeleteFunc(rows, func(r partitionRow) bool { return r.Owner != nil && *r.Owner == t.owner && holds[r.ID] })
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	// In one order, so that two watchers wait for each other in line.
	slices.SortFunc(rows, func(a, b partitionRow) int { return cmp.Compare(a.ID, b.ID) })
	var taken []lease
	err = s.write(ctx, func(tx *gorm.DB) error {
		taken = taken[:0]
		for _, row := range rows {
			done := tx.Table("partitions").Where("id = ? AND version = ?", row.ID, row.Version).Updates(map[string]any{
				"owner": t.owner, "until": gorm.Expr(s.dialect.later, t.length.Milliseconds()), "claimant": nil,
				"epoch": gorm.Expr("epoch + 1"), "version": gorm.Expr("version + 1"),
			})
			if done.Error != nil {
				return done.Error
			}
			if done.RowsAffected == 1 {
				taken = append(taken, lease{row.ID, row.Epoch + 1})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// acquireBatch is acquire by one statement. It leaves rows alone that are locked, so that several watchers take different
// ones at the same time, and none waits for a transaction that is stuck.
func (s *Store) acquireBatch(ctx context.Context, t terms, n int, holds map[string]bool) (taken []lease, err error) {
	mine := slices.AppendSeq(make([]string, 0, len(holds)), maps.Keys(holds)) // by its address: GORM takes a slice apart
	free := s.db.Table("partitions p").Select("p.id").Where("p.status = 'Available'").Where(s.dialect.free(), t.owner).
		Where(s.dialect.work(t), t.workArgs()...).Where("NOT (COALESCE(p.owner, '') = ? AND p.id = ANY(?))", t.owner, &mine).
		Order("p.until" + s.dialect.nullsFirst + ", p.id").Limit(min(n, leaseBatchMost)).
		Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate, Options: clause.LockingOptionsSkipLocked})
	var rows []partitionRow
	err = s.write(ctx, func(tx *gorm.DB) error {
		return tx.Raw("UPDATE partitions SET owner = ?, until = "+s.dialect.later+", claimant = NULL, epoch = epoch + 1, version = version + 1 "+
			"WHERE id IN (?) RETURNING id, epoch", t.owner, t.length.Milliseconds(), free).Scan(&rows).Error
	})
	for _, row := range rows {
		taken = append(taken, lease{row.ID, row.Epoch})
	}
	return taken, err
}

// renew extends leases and returns those that are still held, and of these the ones that another watcher claims.
func (s *Store) renew(ctx context.Context, t terms, leases []lease) (held, claimed map[lease]bool, err error) {
	held, claimed = map[lease]bool{}, map[lease]bool{}
	for part := range slices.Chunk(leases, renewBatch) {
		ids := make([]string, len(part))
		for i, l := range part {
			ids[i] = l.id
		}
		err := s.write(ctx, func(tx *gorm.DB) error {
			return tx.Table("partitions").Where("owner = ? AND id IN ?", t.owner, ids).Updates(map[string]any{
				"until":   gorm.Expr(s.dialect.later, t.length.Milliseconds()),
				"version": gorm.Expr("version + 1"),
			}).Error
		})
		if err != nil {
			return nil, nil, err
		}
		var rows []partitionRow
		err = s.db.WithContext(ctx).Where("owner = ? AND id IN ?", t.owner, ids).Find(&rows).Error
		if err != nil {
			return nil, nil, err
		}
		for i := range rows {
			l := lease{rows[i].ID, rows[i].Epoch}
			held[l] = true
			if c := rows[i].Claimant; c != nil && *c != "" {
				claimed[l] = true
			}
		}
	}
	return held, claimed, nil
}

// release gives leases back. A partition that another watcher claims is kept for that for a moment. The epoch is
// compared, because a release of which the answer got lost is tried again, and the watcher may have leased the partition
// anew meanwhile.
func (s *Store) release(ctx context.Context, t terms, leases []lease) error {
	for part := range slices.Chunk(leases, renewBatch) {
		args := make([]any, 0, 2*len(part))
		for _, l := range part {
			args = append(args, l.id, l.epoch)
		}
		these := strings.Repeat(" OR (id = ? AND epoch = ?)", len(part))[len(" OR "):]
		err := s.write(ctx, func(tx *gorm.DB) error {
			return tx.Table("partitions").Where("owner = ?", t.owner).Where("("+these+")", args...).Updates(s.freed()).Error
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) freed() map[string]any {
	return map[string]any{
		"owner": nil, "version": gorm.Expr("version + 1"),
		"until": gorm.Expr("CASE WHEN claimant IS NULL OR claimant = '' THEN "+s.dialect.now+" ELSE "+s.dialect.later+" END",
			claimWait.Milliseconds()),
	}
}

// share is how many live leases a watcher has.
type share struct {
	Owner string
	N     int
}

// claim asks the watcher with the most leases for one, where that has at least two more than this one. It tells
// whether it asked.
func (s *Store) claim(ctx context.Context, t terms) (bool, error) {
	var shares []share
	db := s.db.WithContext(ctx)
	// What is claimed already counts for the claimant.
	const holder = "CASE WHEN p.claimant IS NULL OR p.claimant = '' THEN p.owner ELSE p.claimant END"
	err := db.Table("partitions p").Select(holder + " AS owner, COUNT(*) AS n").
		Where("p.status = 'Available' AND p.owner <> '' AND NOT " + s.dialect.past("p.until")).Group(holder).Find(&shares).Error
	if err != nil {
		return false, err
	}
	mine, most := 0, share{}
	for _, sh := range shares {
		if sh.Owner == t.owner {
			mine = sh.N
		} else if sh.N > most.N {
			most = sh
		}
	}
	if most.N < mine+2 {
		return false, nil
	}
	var rows []partitionRow
	err = db.Where("owner = ? AND (claimant IS NULL OR claimant = '') AND status = 'Available'", most.Owner).Order("id").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return false, err
	}
	done := false
	err = s.write(ctx, func(tx *gorm.DB) error {
		set := tx.Table("partitions").Where("id = ? AND version = ?", rows[0].ID, rows[0].Version).
			Updates(map[string]any{"claimant": t.owner, "version": gorm.Expr("version + 1")})
		done = set.RowsAffected == 1
		return set.Error
	})
	return done, err
}

// soonest is how long it takes until a lease of another watcher ends or an item's time comes, or a negative
// duration where nothing is known to come.
func (s *Store) soonest(ctx context.Context, t terms) (time.Duration, error) {
	db := s.db.WithContext(ctx)
	var now dbTime
	if err := db.Raw("SELECT " + s.dialect.now).Row().Scan(&now); err != nil {
		return 0, err
	}
	wait := time.Duration(-1)
	for _, q := range []*gorm.DB{
		db.Raw("SELECT MIN(until) FROM partitions WHERE status = 'Available' AND owner <> '' AND owner <> ?", t.owner),
		db.Raw("SELECT MIN(not_before) FROM items WHERE status = 'Available' AND not_before IS NOT NULL AND NOT " + s.dialect.past("not_before")),
	} {
		var at dbTime
		if err := q.Row().Scan(&at); err != nil {
			return 0, err
		}
		if at.IsZero() {
			continue
		}
		if d := max(0, at.Sub(now.Time)); wait < 0 || d < wait {
			wait = d
		}
	}
	return wait, nil
}
