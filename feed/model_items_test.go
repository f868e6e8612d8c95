package feed

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (c *client) fetch(ctx context.Context, t terms, wants []want) (list []Item, err error) {
	err = c.read(ctx, "fetch", func() {
		for _, w := range wants {
			p := c.partitions[w.id]
			if p == nil || !p.ownedBy(t.owner, w.epoch) || p.Status != Available {
				continue
			}
			n := 0
			for _, it := range c.items[w.id] {
				if it.Gate == p.Gate && it.Seq > w.after && c.due(it) && n < w.limit {
					n++
					list = append(list, it.item())
				}
			}
		}
	})
	return list, err
}

func (c *client) save(ctx context.Context, t terms, results []result) ([]bool, error) {
	saved := make([]bool, len(results))
	leases := map[string]bool{}
	for _, r := range results {
		leases[r.id] = true
	}
	err := c.transact(ctx, "save", func(tx *transaction) error {
		rows := map[string]partitionRow{}
		for _, id := range sortedKeys(leases) {
			p, err := tx.lock(id)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			rows[id] = p
		}
		for i := range results {
			r := &results[i]
			p := rows[r.id]
			if !p.ownedBy(t.owner, r.epoch) && c.planted != noEpoch {
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
func (tx *transaction) setItem(r *result, epoch int64) bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for _, it := range tx.items[r.id] {
		if it.ID != r.item.ID || it.Version != r.item.Version {
			continue
		}
		row := *it
		row.Gate, row.Status, row.Attempt, row.Errors, row.NotBefore = r.gate, r.status, r.attempt, encodeErrors(r.errors), nil
		row.Step, row.Version = row.Step+r.steps(), row.Version+1
		if r.data != nil {
			row.Data = r.data
		}
		if r.delay > 0 {
			at := tx.now().Add(time.Duration(r.delayMS()) * time.Millisecond)
			row.NotBefore = &at
		}
		tx.writes = append(tx.writes, func() {
			tx.changes = append(tx.changes, change{
				What: "item", PartitionID: r.id, ID: row.ID, Gate: row.Gate, Was: string(it.Status), Status: string(row.Status), Version: row.Version, Epoch: epoch,
			})
			*it = row
		})
		return true
	}
	return false
}

func (c *client) settle(ctx context.Context, t terms, l lease) (result outcome, gate int, err error) {
	err = c.transact(ctx, "settle "+l.id, func(tx *transaction) error {
		p, err := tx.lock(l.id)
		if err != nil {
			return err
		}
		if c.planted == noGateLock {
			<-c.locks[l.id]
			tx.locked = nil
		}
		result, gate = lost, p.Gate
		if !p.ownedBy(t.owner, l.epoch) {
			return nil
		}
		result = idle
		if p.Status == Available {
			if result, err = tx.judge(t, &p); err != nil {
				return err
			}
		}
		if result == again {
			return nil
		}
		if gate = p.Gate; result != passed {
			c.freed(&p)
		}
		tx.setPartition(p)
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return lost, 0, nil
	}
	return result, gate, err
}

// judge is a statement for each question, as Store's.
func (tx *transaction) judge(t terms, p *partitionRow) (outcome, error) {
	var failure error
	has := func(condition func(it *itemRow) bool) (found bool) {
		if failure == nil {
			failure = tx.read(tx.ctx, tx.name, func() { found = tx.count(p.ID, condition) > 0 })
		}
		return found
	}
	due, later, next := false, false, (*int)(nil)
	failure = tx.read(tx.ctx, tx.name, func() {
		for _, it := range tx.items[p.ID] {
			if it.Gate == p.Gate && it.Status == Available {
				due, later = due || tx.due(it), true
			}
		}
	})
	switch {
	case due:
		return again, failure
	case later:
		return idle, failure
	case has(func(it *itemRow) bool { return it.Gate == p.Gate && it.Status == Failed }):
		p.Status = Failed
		return blocked, failure
	}
	has(func(it *itemRow) bool {
		if it.Gate > p.Gate && it.Status != Complete && (next == nil || it.Gate < *next) {
			next = &it.Gate
		}
		return false
	})
	switch {
	case failure != nil || (next != nil && t.manual):
		return idle, failure
	case next != nil:
		p.Gate = *next
		return passed, nil
	case !t.autoClose || !p.Sealed || has(func(it *itemRow) bool { return it.Status != Complete }):
		return idle, failure
	}
	p.Status = Complete
	return closed, failure
}

// change is what Store does for inserters and operators.
func (c *client) change(ctx context.Context, name, id string, f func(tx *transaction, p *partitionRow) error) error {
	err := c.transact(ctx, name, func(tx *transaction) error {
		p, err := tx.lock(id)
		if err == nil {
			err = f(tx, &p)
		}
		return err
	})
	if err == nil {
		c.hub.send(id)
	}
	return err
}

func (c *client) create(p Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partitions[p.ID] = &partitionRow{ID: p.ID, Gate: p.Gate, Status: Available, Sealed: p.Sealed, Version: 1}
	c.locks[p.ID] = make(chan struct{}, 1)
}

func (c *client) insert(ctx context.Context, partition string, items ...Item) error {
	return c.change(ctx, "insert", partition, func(tx *transaction, p *partitionRow) error {
		if p.Sealed || p.Status == Complete {
			return ErrClosed
		}
		rows, err := newRows(p, items)
		if err != nil {
			return err
		}
		twice := false
		err = tx.read(ctx, "insert", func() {
			for i := range rows {
				twice = twice || tx.count(p.ID, func(it *itemRow) bool { return it.ID == rows[i].ID }) > 0
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
		return err
	})
}

func (c *client) seal(ctx context.Context, partition string) error {
	return c.change(ctx, "seal", partition, func(tx *transaction, p *partitionRow) error {
		if !p.Sealed {
			p.Sealed = true
			tx.setPartition(*p)
		}
		return nil
	})
}

// unfail is Retry of all, or Skip of all.
func (c *client) unfail(ctx context.Context, partition string, status Status) error {
	return c.change(ctx, "unfail", partition, func(tx *transaction, p *partitionRow) error {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		failed := false
		for _, it := range tx.items[p.ID] {
			if it.Status != Failed {
				continue
			}
			failed = true
			tx.writes = append(tx.writes, func() {
				it.Status, it.Version, it.NotBefore = status, it.Version+1, nil
				if status == Available {
					it.Attempt, it.Errors = 0, nil
				}
			})
		}
		if failed && p.Status == Failed {
			p.Status = Available
			tx.setPartition(*p)
		}
		return nil
	})
}
