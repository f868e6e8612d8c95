package feed

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (c *client) Fetch(ctx context.Context, t sqlstore.Terms, wants []sqlstore.Want) (list []sqlstore.Item, err error) {
	err = c.read(ctx, "fetch", func() {
		for _, w := range wants {
			p := c.partitions[w.ID]
			if p == nil || !p.OwnedBy(t.Owner, w.Epoch) || p.Status != sqlstore.Available {
				continue
			}
			n, size := 0, 0
			for _, it := range c.items[w.ID] {
				if it.Gate == p.Gate && it.Seq > w.After && c.due(it) && n < w.Limit && size < w.Bytes {
					n, size = n+1, size+len(it.Data)
					list = append(list, *it)
				}
			}
		}
	})
	return list, err
}

func (c *client) Save(ctx context.Context, t sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	saved := make([]bool, len(results))
	leases := map[string]bool{}
	for _, r := range results {
		leases[r.ID] = true
	}
	err := c.transact(ctx, "save", func(tx *transaction) error {
		rows := map[string]sqlstore.Partition{}
		for _, id := range sortedKeys(leases) {
			p, err := tx.lock(id)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			rows[id] = p
		}
		for i := range results {
			r := &results[i]
			p := rows[r.ID]
			if !p.OwnedBy(t.Owner, r.Epoch) && c.planted != noEpoch {
				continue
			}
			// The lock of the partition is that of its items: nobody else changes one.
			saved[i] = tx.setItem(r, p.Epoch)
		}
		return nil
	})
	return saved, err
}

// setItem writes a result at the end of the transaction, if the version fits.
func (tx *transaction) setItem(r *sqlstore.Result, epoch int64) bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for _, it := range tx.items[r.ID] {
		if it.ID != r.Item || it.Version != r.Version {
			continue
		}
		row := *it
		row.Gate, row.Status, row.Attempt, row.Errors, row.NotBefore = r.Gate, r.Status, r.Attempt, r.Errors, nil
		row.Step, row.Version, row.Crashes = row.Step+r.Steps, row.Version+1, r.Crashes
		if r.Data != nil {
			row.Data = r.Data
		}
		if r.History != nil {
			row.History = r.History
		}
		if r.Delay > 0 {
			at := tx.now().Add(time.Duration(r.DelayMS()) * time.Millisecond)
			row.NotBefore = &sqlstore.RowTime{Time: at}
		}
		tx.writes = append(tx.writes, func() {
			tx.changes = append(tx.changes, change{
				What: "item", PartitionID: r.ID, ID: row.ID, Gate: row.Gate, Was: it.Status, Status: row.Status, Version: row.Version, Epoch: epoch,
			})
			*it = row
		})
		return true
	}
	return false
}

func (c *client) Settle(ctx context.Context, t sqlstore.Terms, l sqlstore.Lease) (result sqlstore.Outcome, gate int, err error) {
	err = c.transact(ctx, "settle "+l.ID, func(tx *transaction) error {
		p, err := tx.lock(l.ID)
		if err != nil {
			return err
		}
		if c.planted == noGateLock {
			<-c.locks[l.ID]
			tx.locked = nil
		}
		result, gate = sqlstore.Lost, p.Gate
		if !p.OwnedBy(t.Owner, l.Epoch) {
			return nil
		}
		result = sqlstore.Idle
		if p.Status == sqlstore.Available {
			if result, err = tx.judge(t, &p); err != nil {
				return err
			}
		}
		if result == sqlstore.Again {
			return nil
		}
		if gate = p.Gate; result != sqlstore.Passed {
			c.freed(&p)
		}
		tx.setPartition(p)
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return sqlstore.Lost, 0, nil
	}
	return result, gate, err
}

// judge is a statement for what is at the gate, for the next gate and for the rest, as Store's.
func (tx *transaction) judge(t sqlstore.Terms, p *sqlstore.Partition) (sqlstore.Outcome, error) {
	var failure error
	has := func(condition func(it *sqlstore.Item) bool) (found bool) {
		if failure == nil {
			failure = tx.read(tx.ctx, tx.name, func() { found = tx.count(p.ID, condition) > 0 })
		}
		return found
	}
	due, later, failed, next := false, false, false, (*int)(nil)
	failure = tx.read(tx.ctx, tx.name, func() {
		for _, it := range tx.items[p.ID] {
			if it.Gate == p.Gate && it.Status == sqlstore.Available {
				due, later = due || tx.due(it), true
			}
			failed = failed || (it.Gate == p.Gate && it.Status == sqlstore.Failed)
		}
	})
	switch {
	case due:
		return sqlstore.Again, failure
	case later:
		return sqlstore.Idle, failure
	case failed:
		p.Status = sqlstore.Failed
		return sqlstore.Blocked, failure
	}
	has(func(it *sqlstore.Item) bool {
		if it.Gate > p.Gate && it.Status != sqlstore.Complete && (next == nil || it.Gate < *next) {
			next = &it.Gate
		}
		return false
	})
	switch {
	case failure != nil || (next != nil && t.Manual):
		return sqlstore.Idle, failure
	case next != nil:
		p.Gate = *next
		return sqlstore.Passed, nil
	case !t.AutoClose || !p.Sealed || has(func(it *sqlstore.Item) bool { return it.Status != sqlstore.Complete }):
		return sqlstore.Idle, failure
	}
	p.Status = sqlstore.Complete
	return sqlstore.Closed, failure
}

// change is what Store does for inserters and operators.
func (c *client) change(ctx context.Context, name, id string, f func(tx *transaction, p *sqlstore.Partition) error) error {
	err := c.transact(ctx, name, func(tx *transaction) error {
		p, err := tx.lock(id)
		if err == nil {
			err = f(tx, &p)
		}
		return err
	})
	if err == nil {
		c.hub.Send(id)
	}
	return err
}

func (c *client) create(p Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partitions[p.ID] = &sqlstore.Partition{ID: p.ID, Gate: p.Gate, Status: sqlstore.Available, Sealed: p.Sealed, Version: 1}
	c.locks[p.ID] = make(chan struct{}, 1)
}

func (c *client) insert(ctx context.Context, partition string, items ...Item) error {
	return c.change(ctx, "insert", partition, func(tx *transaction, p *sqlstore.Partition) error {
		if p.Sealed || p.Status == sqlstore.Complete {
			return ErrClosed
		}
		rows, err := newRows(p.ID, items)
		if err = cmp.Or(err, atGate(p, rows)); err != nil {
			return err
		}
		twice := false
		err = tx.read(ctx, "insert", func() {
			for i := range rows {
				twice = twice || tx.count(p.ID, func(it *sqlstore.Item) bool { return it.ID == rows[i].ID }) > 0
			}
		})
		if err == nil && twice {
			return ErrDuplicate
		}
		for i := range rows {
			tx.writes = append(tx.writes, func() {
				tx.seq++
				rows[i].Seq = tx.seq
				tx.items[p.ID] = append(tx.items[p.ID], &rows[i])
			})
		}
		if p.Status == sqlstore.Failed && slices.ContainsFunc(rows, func(it sqlstore.Item) bool { return it.Gate == p.Gate }) {
			p.Status = sqlstore.Available
			tx.setPartition(*p)
		}
		return err
	})
}

func (c *client) seal(ctx context.Context, partition string) error {
	return c.change(ctx, "seal", partition, func(tx *transaction, p *sqlstore.Partition) error {
		if !p.Sealed {
			p.Sealed = true
			tx.setPartition(*p)
		}
		return nil
	})
}

// unfail is Retry of all, or Skip of all.
func (c *client) unfail(ctx context.Context, partition string, status string) error {
	return c.change(ctx, "unfail", partition, func(tx *transaction, p *sqlstore.Partition) error {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		failed := false
		for _, it := range tx.items[p.ID] {
			if it.Status != sqlstore.Failed {
				continue
			}
			failed = true
			tx.writes = append(tx.writes, func() {
				it.Status, it.Version, it.NotBefore = status, it.Version+1, nil
				if status == sqlstore.Available {
					it.Attempt, it.Errors = 0, nil
				}
			})
		}
		if failed && p.Status == sqlstore.Failed {
			p.Status = sqlstore.Available
			tx.setPartition(*p)
		}
		return nil
	})
}
