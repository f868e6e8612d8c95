package feed

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// model is a database in memory: rows, locks of partitions that are kept until the transaction ends, writes that
// others see from then on. A client of it does what [Store] does, statement by statement; TestModelIsTheStore
// compares the two.
type model struct {
	now     func() time.Time
	planted string
	hub     sqlstore.Hub

	mu         sync.Mutex
	partitions map[string]*sqlstore.Partition
	items      map[string][]*sqlstore.Item // of a partition, oldest first
	locks      map[string]chan struct{}
	limits     map[int]*sqlstore.LimitState
	seq        int64
	changes    []change
}

// The bugs that can be planted.
const (
	noGateLock = "the gate is checked without the row's lock"
	noEpoch    = "the epoch is not compared"
	localClock = "leases are renewed by the local clock"
)

func newModel(now func() time.Time) *model {
	return &model{
		now: now, limits: map[int]*sqlstore.LimitState{}, partitions: map[string]*sqlstore.Partition{}, items: map[string][]*sqlstore.Item{},
		locks: map[string]chan struct{}{},
	}
}

// client is what one process does to a model. It implements [engine.Tables].
type client struct {
	*model
	skew time.Duration // of the local clock
	// statement is called before each, and may wait or fail; answer, after an operation is over, may lose what came of it.
	statement func(ctx context.Context, name string) error
	answer    func(name string) error
}

// transaction is what is locked and to be written.
type transaction struct {
	*client
	ctx    context.Context
	name   string
	locked []string
	writes []func()
}

func (c *client) transact(ctx context.Context, name string, f func(tx *transaction) error) error {
	tx := &transaction{client: c, ctx: ctx, name: name}
	err := f(tx)
	if err == nil {
		err = c.statement(ctx, name)
	}
	c.mu.Lock()
	if err == nil {
		for _, write := range tx.writes {
			write()
		}
	}
	for _, id := range tx.locked {
		<-c.locks[id]
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.answer(name)
}

// lock waits for a partition's lock and returns its row.
func (tx *transaction) lock(id string) (sqlstore.Partition, error) {
	if err := tx.statement(tx.ctx, tx.name); err != nil {
		return sqlstore.Partition{}, err
	}
	tx.mu.Lock()
	lock := tx.locks[id]
	tx.mu.Unlock()
	if lock == nil {
		return sqlstore.Partition{}, ErrNotFound
	}
	if !slices.Contains(tx.locked, id) {
		select {
		case lock <- struct{}{}:
		case <-tx.ctx.Done():
			return sqlstore.Partition{}, tx.ctx.Err()
		}
		tx.locked = append(tx.locked, id)
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return *tx.partitions[id], nil
}

// read runs a statement that only reads.
func (c *client) read(ctx context.Context, name string, f func()) error {
	if err := c.statement(ctx, name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	return nil
}

// setPartition writes a row at the end of the transaction, and notes what the triggers of a database would.
func (tx *transaction) setPartition(p sqlstore.Partition) {
	p.Version++
	tx.writes = append(tx.writes, func() {
		was := *tx.partitions[p.ID]
		if was.Version != p.Version-1 {
			return // not locked, by a bug
		}
		*tx.partitions[p.ID] = p
		if was.Epoch != p.Epoch {
			tx.changes = append(tx.changes, change{
				What: "lease", PartitionID: p.ID, Gate: p.Gate, Was: text(was.Owner), Status: text(p.Owner),
				Version: p.Version, Epoch: p.Epoch,
			})
		}
		if was.Gate != p.Gate || was.Status != p.Status {
			open := tx.count(p.ID, func(it *sqlstore.Item) bool {
				return it.Status != sqlstore.Complete && (it.Gate < p.Gate || p.Status == sqlstore.Complete)
			})
			tx.changes = append(tx.changes, change{
				What: "partition", PartitionID: p.ID, Gate: p.Gate, Was: was.Status, Status: p.Status, Version: p.Version, Epoch: p.Epoch, Open: open,
			})
		}
	})
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// count counts a partition's items. The caller has mu.
func (m *model) count(partition string, condition func(*sqlstore.Item) bool) (n int) {
	for _, it := range m.items[partition] {
		if condition(it) {
			n++
		}
	}
	return n
}

func (m *model) due(it *sqlstore.Item) bool {
	return it.Status == sqlstore.Available && (it.NotBefore == nil || !it.NotBefore.After(m.now()))
}

// clock is the database's, unless that bug is planted.
func (c *client) clock() time.Time {
	if c.planted == localClock {
		return c.now().Add(c.skew)
	}
	return c.now()
}

func (c *client) free(p *sqlstore.Partition, t sqlstore.Terms) bool {
	if text(p.Owner) == "" && (text(p.Claimant) == "" || text(p.Claimant) == t.Owner) {
		return true
	}
	return p.Until == nil || !p.Until.After(c.clock())
}

func (m *model) work(p *sqlstore.Partition, t sqlstore.Terms) bool {
	n := func(condition func(it *sqlstore.Item) bool) int { return m.count(p.ID, condition) }
	here := func(it *sqlstore.Item) bool { return it.Gate == p.Gate }
	if n(func(it *sqlstore.Item) bool { return here(it) && m.due(it) }) > 0 {
		return true
	}
	if n(func(it *sqlstore.Item) bool { return here(it) && it.Status == sqlstore.Available }) > 0 {
		return false
	}
	if n(func(it *sqlstore.Item) bool { return here(it) && it.Status == sqlstore.Failed }) > 0 {
		return true
	}
	if !t.Manual && n(func(it *sqlstore.Item) bool { return it.Gate > p.Gate && it.Status != sqlstore.Complete }) > 0 {
		return true
	}
	return t.AutoClose && p.Sealed && n(func(it *sqlstore.Item) bool { return it.Status != sqlstore.Complete }) == 0
}

func (c *client) candidates(ctx context.Context, name string, t sqlstore.Terms, most int) (rows []sqlstore.Partition, err error) {
	err = c.read(ctx, name, func() {
		for _, p := range c.partitions {
			if p.Status == sqlstore.Available && c.free(p, t) && c.work(p, t) {
				rows = append(rows, *p)
			}
		}
	})
	until := func(p *sqlstore.Partition) int64 {
		if p.Until == nil {
			return 0
		}
		return p.Until.UnixNano()
	}
	slices.SortFunc(rows, func(a, b sqlstore.Partition) int {
		return cmp.Or(cmp.Compare(until(&a), until(&b)), cmp.Compare(a.ID, b.ID))
	})
	return rows[:min(most, len(rows))], err
}

func (c *client) Waiting(ctx context.Context, t sqlstore.Terms, most int) (int, error) {
	rows, err := c.candidates(ctx, "waiting", t, most)
	return len(rows), err
}

func (c *client) Acquire(ctx context.Context, t sqlstore.Terms, n int, holds []string) (taken []sqlstore.Taken, err error) {
	rows, err := c.candidates(ctx, "acquire", t, min(n, sqlstore.LeaseBatch))
	rows = slices.DeleteFunc(rows, func(p sqlstore.Partition) bool { return text(p.Owner) == t.Owner && slices.Contains(holds, p.ID) })
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b sqlstore.Partition) int { return cmp.Compare(a.ID, b.ID) })
	err = c.transact(ctx, "acquire", func(tx *transaction) error {
		for _, row := range rows {
			p, err := tx.lock(row.ID)
			if err != nil {
				return err
			}
			if p.Version != row.Version {
				continue
			}
			until := sqlstore.RowTime{Time: c.clock().Add(t.Length)}
			over := p.Owner != nil
			p.Owner, p.Until, p.Claimant, p.Epoch = &t.Owner, &until, nil, p.Epoch+1
			tx.setPartition(p)
			taken = append(taken, sqlstore.Taken{Lease: leaseOf(p.ID, p.Epoch), Gate: p.Gate, Over: over})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

func (c *client) Renew(ctx context.Context, t sqlstore.Terms, leases []sqlstore.Lease) (held map[sqlstore.Lease]sqlstore.Hold, err error) {
	ids := sortedIDs(leases)
	err = c.owned(ctx, "renew", t, ids, func(p *sqlstore.Partition) bool {
		until := sqlstore.RowTime{Time: c.clock().Add(t.Length)}
		p.Until = &until
		return true
	})
	if err != nil {
		return nil, err
	}
	held = map[sqlstore.Lease]sqlstore.Hold{}
	err = c.read(ctx, "renew", func() {
		for _, id := range ids {
			if p := c.partitions[id]; p != nil && text(p.Owner) == t.Owner {
				held[leaseOf(id, p.Epoch)] = sqlstore.Renewed
				if text(p.Claimant) != "" {
					held[leaseOf(id, p.Epoch)] = sqlstore.Claimed
				}
			}
		}
	})
	return held, err
}

func sortedIDs(leases []sqlstore.Lease) (ids []string) {
	for _, l := range leases {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// owned changes those of the partitions that the owner of t has.
func (c *client) owned(ctx context.Context, name string, t sqlstore.Terms, ids []string, set func(p *sqlstore.Partition) bool) error {
	return c.transact(ctx, name, func(tx *transaction) error {
		for _, id := range ids {
			p, err := tx.lock(id)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if text(p.Owner) == t.Owner && set(&p) {
				tx.setPartition(p)
			}
		}
		return nil
	})
}

func (c *client) Release(ctx context.Context, t sqlstore.Terms, leases []sqlstore.Taken) error {
	err := c.owned(ctx, "release", t, sortedIDs(leasesOf(leases)), func(p *sqlstore.Partition) bool {
		i := slices.IndexFunc(leases, func(l sqlstore.Taken) bool { return l.Lease == leaseOf(p.ID, p.Epoch) })
		if i < 0 {
			return false
		}
		if c.freed(p); leases[i].Over {
			p.Owner = new("")
		}
		return true
	})
	if err == nil {
		c.hub.Send(leases[0].ID)
	}
	return err
}

func (c *client) freed(p *sqlstore.Partition) {
	until := sqlstore.RowTime{Time: c.clock()}
	if text(p.Claimant) != "" {
		until.Time = until.Add(sqlstore.ClaimWait)
	}
	p.Owner, p.Until = nil, &until
}

func (c *client) Claim(ctx context.Context, t sqlstore.Terms) (done bool, err error) {
	shares, owners := map[string]int{}, []string{}
	var wanted *sqlstore.Partition
	err = c.read(ctx, "claim", func() {
		for _, id := range sortedKeys(c.partitions) {
			p := c.partitions[id]
			holder := cmp.Or(text(p.Claimant), text(p.Owner))
			if p.Status != sqlstore.Available || holder == "" || !p.Until.After(c.clock()) {
				continue
			}
			if shares[holder]++; shares[holder] == 1 {
				owners = append(owners, holder)
			}
		}
	})
	if err != nil {
		return false, err
	}
	most := ""
	for _, o := range owners {
		if o != t.Owner && shares[o] > shares[most] {
			most = o
		}
	}
	if shares[most] < shares[t.Owner]+2 {
		return false, nil
	}
	err = c.read(ctx, "claim", func() {
		for _, id := range sortedKeys(c.partitions) {
			if p := c.partitions[id]; wanted == nil && text(p.Owner) == most && text(p.Claimant) == "" && p.Status == sqlstore.Available {
				row := *p
				wanted = &row
			}
		}
	})
	if err != nil || wanted == nil {
		return false, err
	}
	err = c.transact(ctx, "claim", func(tx *transaction) error {
		p, err := tx.lock(wanted.ID)
		if err == nil && p.Version == wanted.Version {
			p.Claimant = &t.Owner
			tx.setPartition(p)
			done = true
		}
		return err
	})
	return done, err
}

func (c *client) Soonest(ctx context.Context, t sqlstore.Terms) (time.Duration, error) {
	wait, now := time.Duration(-1), c.clock()
	sooner := func(at *time.Time) {
		if d := max(0, at.Sub(now)); wait < 0 || d < wait {
			wait = d
		}
	}
	err := c.read(ctx, "soonest", func() {
		for id, p := range c.partitions {
			if p.Status == sqlstore.Available && p.Until != nil && p.Until.After(c.clock()) {
				if text(p.Claimant) == t.Owner {
					sooner(new(now.Add(sqlstore.ClaimEvery)))
				}
				if o := text(p.Owner); o != "" && o != t.Owner {
					sooner(&p.Until.Time)
				}
			}
			for _, it := range c.items[id] {
				if it.Status == sqlstore.Available && it.NotBefore != nil && !c.due(it) {
					sooner(&it.NotBefore.Time)
				}
			}
		}
	})
	return wait, err
}

func (c *client) Subscribe(f func(string)) func()                      { return c.hub.Subscribe(f) }
func (c *client) Listen(context.Context, func(partition string)) error { return nil }

func (c *client) Report(context.Context, sqlstore.Terms, sqlstore.Report) ([]sqlstore.Cancel, error) {
	return nil, nil
}

func (c *client) Grant(ctx context.Context, t sqlstore.Terms, asks []sqlstore.Ask) (grants []sqlstore.Grant, err error) {
	err = c.read(ctx, "grant", func() {
		for i := range asks {
			state := c.limits[asks[i].Gate]
			if state == nil {
				state = &sqlstore.LimitState{}
				c.limits[asks[i].Gate] = state
			}
			grants = append(grants, state.Grant(c.now(), t, &asks[i]))
		}
	})
	if err != nil {
		return nil, err
	}
	return grants, c.answer("grant")
}
