package sqlstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

const (
	// LeaseBatch is how many leases one transaction takes, and leaseBatchMost how many if it is one statement.
	LeaseBatch, leaseBatchMost = 64, 256
	// renewBatch is how many leases one statement renews.
	renewBatch = 500
	// ClaimWait is how long a released partition waits for the watcher that claimed it.
	ClaimWait = time.Second
	// ClaimEvery is how often that watcher looks for it.
	ClaimEvery = ClaimWait / 2
)

// Lease is the lease of a partition. Only a watcher with both the owner and the epoch may write its items.
type Lease struct {
	ID    string
	Epoch int64
}

// Taken is a lease that was taken.
type Taken struct {
	Lease
	Gate int
	// Over: some watcher has not returned it, and no pass has ended since. So that watcher may have begun any item without ending it.
	Over bool
}

// Terms are the terms on which a watcher leases partitions.
type Terms struct {
	Owner  string
	Length time.Duration
	// Manual: gates advance only by a call. AutoClose: sealed partitions that are done are closed.
	Manual, AutoClose bool
	// Patient: Save waits for partitions that are locked.
	Patient bool
}

// lockWait is how long a statement of a watcher waits for a row that another transaction has locked, on PostgreSQL.
const lockWait = time.Second

// Hold is the state of a lease after a renewal.
type Hold int

// The holds.
const (
	NotHeld Hold = iota // the lease is lost
	Renewed
	Claimed  // renewed, and another watcher claims it
	Unlocked // held, and not renewed, because another transaction has the row locked
)

// free returns the condition that a partition may be leased: nobody holds it, or only until a time that has passed.
func (d *dialect) free() string {
	return "(((owner IS NULL OR owner = '') AND (claimant IS NULL OR claimant = '' OR claimant = ?)) OR until IS NULL OR " + d.Past("until") + ")"
}

// work returns the condition that a partition has work: an item that is due, or a gate that is drained and not yet settled.
func (d *dialect) work(t Terms) (condition string, args []any) {
	const at = "SELECT 1 FROM items i WHERE i.partition_id = p.id"
	settle := "EXISTS (" + at + " AND i.status = 'Failed' AND i.gate = p.gate)"
	if !t.Manual {
		settle += " OR EXISTS (" + at + " AND i.status = 'Available' AND i.gate > p.gate)" +
			" OR EXISTS (" + at + " AND i.status = 'Failed' AND i.gate > p.gate)"
	}
	if t.AutoClose {
		settle += " OR (p.sealed = ? AND NOT EXISTS (" + at + " AND i.status = 'Failed')" +
			" AND NOT EXISTS (" + at + " AND i.status = 'Available'))"
		args = append(args, true)
	}
	return "(EXISTS (" + at + " AND i.status = 'Available' AND i.gate = p.gate AND (i.not_before IS NULL OR " + d.Past("i.not_before") + "))" +
		" OR (NOT EXISTS (" + at + " AND i.status = 'Available' AND i.gate = p.gate) AND (" + settle + ")))", args
}

// candidates returns at most n partitions that may be leased and have work, the longest-waiting first: before all others those that nobody has had.
func (s *Store) candidates(ctx context.Context, t Terms, n int) *gorm.DB {
	work, args := s.Dialect.work(t)
	return s.DB.WithContext(ctx).Table("partitions p").Where("p.status = 'Available'").
		Where(s.Dialect.free(), t.Owner).Where(work, args...).
		Order("CASE WHEN p.until IS NULL THEN 0 ELSE 1 END, p.until, p.id").Limit(n)
}

// Waiting returns how many partitions could be leased now, up to most.
func (s *Store) Waiting(ctx context.Context, t Terms, most int) (int, error) {
	var ids []string
	err := s.candidates(ctx, t, most).Pluck("p.id", &ids).Error
	return len(ids), err
}

// Acquire leases at most n partitions that have work. If two watchers want the same partition, the first to write it gets it: it is then not free for
// the other. Leases in holds are left to their renewal, even if that is late. So Acquire takes a lease of the same watcher again only if the watcher
// does not know it, because the answer was lost.
func (s *Store) Acquire(ctx context.Context, t Terms, n int, holds []string) (taken []Taken, err error) {
	if s.batch {
		return acquireBatch(ctx, s, t, n, holds)
	}
	if err := s.present(); err != nil {
		return nil, err
	}
	var found []Partition
	err = s.candidates(ctx, t, min(n, LeaseBatch)).Select("p.*").Find(&found).Error
	found = slices.DeleteFunc(found, func(r Partition) bool { return r.Owner != nil && *r.Owner == t.Owner && slices.Contains(holds, r.ID) })
	if err != nil || len(found) == 0 {
		return nil, err
	}
	ids := Map(found, func(r *Partition) string { return r.ID })
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		free := s.DB.Where("id IN ? AND status = 'Available'", ids).Where(s.Dialect.free(), t.Owner)
		rows, err := s.updateLocked(tx, ids, free, 0, map[string]any{
			"owner": t.Owner, "until": s.Dialect.later(t.Length + s.Dialect.Slack), "claimant": nil,
			"epoch": gorm.Expr("epoch + 1"), "version": gorm.Expr("version + 1"),
		})
		taken = Map(rows, func(r *Partition) Taken {
			return Taken{Lease{r.ID, r.Epoch + 1}, r.Gate, r.Owner != nil}
		})
		return err
	})
	return taken, err
}

// acquireBatch is Acquire in one statement. It skips locked rows, so that several watchers take different ones at the same time, and none waits for a
// stuck transaction.
func acquireBatch(ctx context.Context, s *Store, t Terms, n int, holds []string) (taken []Taken, err error) {
	mine := append([]string{}, holds...) // passed by its address: GORM expands a slice
	free := s.candidates(ctx, t, min(n, leaseBatchMost)).Select("p.id, p.owner").
		Where("NOT (COALESCE(p.owner, '') = ? AND p.id = ANY(?))", t.Owner, &mine).
		Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate, Options: clause.LockingOptionsSkipLocked})
	err = s.retry(ctx, func() error {
		return s.DB.WithContext(ctx).Raw(`UPDATE partitions SET owner = ?, until = ?, claimant = NULL,
			epoch = epoch + 1, version = version + 1 FROM (?) was WHERE partitions.id = was.id
			RETURNING partitions.id, epoch, gate, was.owner IS NOT NULL AS over`,
			t.Owner, s.Dialect.later(t.Length), free).Find(&taken).Error
	})
	return taken, err
}

// Renew extends leases and returns those that are still held. It first skips locked rows, so that the others do not wait for them. Then it waits
// briefly for these: a row that many transactions lock in turn is never free by chance.
func (s *Store) Renew(ctx context.Context, t Terms, leases []Lease) (held map[Lease]Hold, err error) {
	held = map[Lease]Hold{}
	for part := range slices.Chunk(leases, renewBatch) {
		if err := s.renew(ctx, t, part, 0, held); err != nil {
			return nil, err
		}
	}
	begun, wait := time.Now(), min(lockWait, t.Length/10)
	for _, l := range leases {
		if held[l] != Unlocked || time.Since(begun) > wait {
			continue
		}
		if err := s.renew(ctx, t, []Lease{l}, wait, held); err != nil && !Locked(err) {
			return nil, err
		}
	}
	return held, nil
}

func (s *Store) renew(ctx context.Context, t Terms, leases []Lease, wait time.Duration, held map[Lease]Hold) error {
	ids := Map(leases, func(l *Lease) string { return l.ID })
	mine := s.DB.Where("owner = ? AND id IN ?", t.Owner, ids)
	var renewed, rest []Partition
	err := s.Transact(ctx, func(tx *gorm.DB) (err error) {
		renewed, err = s.updateLocked(tx, ids, mine, wait, map[string]any{
			"until": s.Dialect.later(t.Length + s.Dialect.Slack), "version": gorm.Expr("version + 1"),
		})
		return err
	})
	if err == nil && s.batch && len(renewed) < len(leases) {
		err = s.DB.WithContext(ctx).Where(mine).Find(&rest).Error
	}
	for _, row := range rest {
		held[Lease{row.ID, row.Epoch}] = Unlocked
	}
	for _, row := range renewed {
		held[Lease{row.ID, row.Epoch}] = Renewed
		if row.Claimant != nil && *row.Claimant != "" {
			held[Lease{row.ID, row.Epoch}] = Claimed
		}
	}
	return err
}

// Release releases leases, and wakes watchers. A partition that another watcher claims is reserved for that watcher for ClaimWait. If another
// transaction has locked a partition, its lease expires instead. The epoch is compared: a release whose answer was lost is repeated, and the watcher
// may have leased the partition again meanwhile. The owner of a partition that is still Over becomes an empty text, not NULL, for the next Acquire.
func (s *Store) Release(ctx context.Context, t Terms, leases []Taken) error {
	for part := range slices.Chunk(leases, renewBatch) {
		these, over := s.DB, []string{}
		for _, l := range part {
			these = these.Or("id = ? AND epoch = ?", l.ID, l.Epoch)
			if l.Over {
				over = append(over, l.ID)
			}
		}
		set := s.Dialect.freed()
		if len(over) > 0 {
			set["owner"] = gorm.Expr("CASE WHEN id IN ? THEN '' END", over)
		}
		// One ID is enough: a watcher that does not hold that partition looks for all.
		err := s.Write(ctx, part[0].ID, func(tx *gorm.DB) error {
			ids := Map(part, func(l *Taken) string { return l.ID })
			_, err := s.updateLocked(tx, ids, s.DB.Where("owner = ?", t.Owner).Where(these), 0, set)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// updateLocked changes the partitions for which a condition holds, and returns them as they were. It first locks them in the order of their IDs, as a
// save does: an UPDATE of several locks them in the order of the table. With batches, it waits for a locked row for at most wait, or skips it if wait
// is 0.
func (s *Store) updateLocked(tx *gorm.DB, ids []string, which *gorm.DB, wait time.Duration, set map[string]any) (rows []Partition, err error) {
	locked := s.Dialect.lock(tx, ids...).Where(which).Order("id")
	switch {
	case s.batch && wait == 0:
		locked = locked.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate, Options: clause.LockingOptionsSkipLocked})
	case s.batch:
		locked = locked.Where(waitForLock, wait.Milliseconds())
	}
	if err := locked.Find(&rows).Error; err != nil {
		return nil, err
	}
	return rows, tx.Model(&Partition{}).Where("id IN ?", Map(rows, func(r *Partition) string { return r.ID })).Updates(set).Error
}

// waitForLock is a condition that is always true. With it, a statement of PostgreSQL waits for a locked row for at most so many milliseconds.
const waitForLock = "set_config('lock_timeout', CAST(CAST(? AS bigint) AS text), true) <> ''"

// freed returns the changes that end the lease of a partition.
func (d *dialect) freed() map[string]any {
	return map[string]any{
		"owner": nil, "version": gorm.Expr("version + 1"),
		"until": gorm.Expr("CASE WHEN claimant IS NULL OR claimant = '' THEN "+d.Now+" ELSE ? END", d.later(ClaimWait)),
	}
}

// Claim asks the watcher with the most leases for one, if that has at least two more than this one. It reports whether it asked.
func (s *Store) Claim(ctx context.Context, t Terms) (bool, error) {
	var shares []struct { // live leases by watcher
		Owner string
		N     int
	}
	db := s.DB.WithContext(ctx)
	// A partition that is claimed counts for the claimant, also while it is released and kept for the claimant.
	const holder = "CASE WHEN p.claimant IS NULL OR p.claimant = '' THEN p.owner ELSE p.claimant END"
	err := db.Table("partitions p").Select(holder + " AS owner, COUNT(*) AS n").
		Where("p.status = 'Available' AND " + holder + " <> '' AND NOT " + s.Dialect.Past("p.until")).Group(holder).Find(&shares).Error
	if err != nil {
		return false, err
	}
	mine, most, owner := 0, 0, ""
	for _, share := range shares {
		if share.Owner == t.Owner {
			mine = share.N
		} else if share.N > most {
			most, owner = share.N, share.Owner
		}
	}
	if most < mine+2 {
		return false, nil
	}
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		rows := tx.Order("id")
		if s.batch {
			rows = rows.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate, Options: clause.LockingOptionsSkipLocked})
		}
		row, err := First[Partition](rows, "owner = ? AND (claimant IS NULL OR claimant = '') AND status = 'Available'", owner)
		if err != nil {
			return err
		}
		return row.Update(tx, map[string]any{"claimant": t.Owner})
	})
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// Soonest returns the time until a lease of another watcher ends or an item becomes due, or a negative duration if neither will. While the watcher
// claims a partition, it is at most ClaimEvery: the partition may be released at any time, and no wake-up is certain.
func (s *Store) Soonest(ctx context.Context, t Terms) (time.Duration, error) {
	var now, ends, due RowTime
	var claims int
	leased := " FROM partitions WHERE status = 'Available' AND NOT " + s.Dialect.Past("until")
	err := ScanRow(s.DB.WithContext(ctx).Raw("SELECT "+s.Dialect.Now+", (SELECT MIN(until)"+leased+" AND owner <> '' AND owner <> ?)"+
		", (SELECT MIN(not_before) FROM items WHERE status = 'Available' AND not_before IS NOT NULL AND NOT "+s.Dialect.Past("not_before")+")"+
		", (SELECT COUNT(*)"+leased+" AND claimant = ?)",
		t.Owner, t.Owner), &now, &ends, &due, &claims)
	wait := time.Duration(-1)
	if claims > 0 {
		wait = ClaimEvery
	}
	for _, at := range []RowTime{ends, due} {
		if d := max(0, at.Sub(now.Time)); !at.IsZero() && (wait < 0 || d < wait) {
			wait = d
		}
	}
	return wait, err
}
