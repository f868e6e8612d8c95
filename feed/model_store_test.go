package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// twins are a Store and a model to which the same is done.
type twins struct {
	t *testing.T
	r *rand.Rand
	s *Store
	c *client

	leases  []sqlstore.Lease
	fetched []Item
}

// TestModelIsTheStore: whatever is done, one operation after the other, the model answers what the Store answers,
// and has in its tables what that has.
func TestModelIsTheStore(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 2
	}
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		for round := range rounds {
			seed := uint64(round + 1)
			if !testing.Short() {
				seed = rand.Uint64()
			}
			require.NoError(t, s.sql.DB.Exec("DELETE FROM items").Error)
			require.NoError(t, s.sql.DB.Exec("DELETE FROM partitions").Error)
			w := &twins{t: t, r: rand.New(rand.NewPCG(seed, 0)), s: s, c: &client{
				model: newModel(time.Now), statement: func(context.Context, string) error { return nil }, answer: func(string) error { return nil },
			}}
			for i := range 3 {
				p := Partition{ID: fmt.Sprint("p", i)}
				create(t, s, p)
				w.c.create(p)
			}
			var done []string
			for range 150 {
				what, store, model := w.step()
				done = append(done, what+": "+store)
				require.Equal(t, store, model, "seed %d: %s", seed, strings.Join(done, "\n"))
				require.Equal(t, w.storeTables(), w.modelTables(), "seed %d: %s", seed, strings.Join(done, "\n"))
				w.expire(false)
			}
		}
	})
}

// step does one operation to both and returns what they answered.
func (w *twins) step() (what, store, model string) {
	ctx, partition := w.t.Context(), fmt.Sprint("p", w.r.IntN(4))
	as := termsOf([]string{"a", "b"}[w.r.IntN(2)])
	as.AutoClose, as.Manual = w.r.IntN(2) == 0, w.r.IntN(8) == 0
	both := func(name string, do func(s engine.Tables) string) (string, string, string) {
		return fmt.Sprint(name, " ", partition, " ", as), do(w.s.sql), do(w.c)
	}
	switch n := w.r.IntN(20); {
	case n < 4:
		it := Item{ID: fmt.Sprint("i", w.r.IntN(40)), Gate: w.r.IntN(5)}
		return "insert " + fmt.Sprint(partition, it), sentinel(w.s.Insert(ctx, partition, it)), sentinel(w.c.insert(ctx, partition, it))
	case n == 4 && w.r.IntN(4) == 0:
		return "seal " + partition, sentinel(w.s.Seal(ctx, partition)), sentinel(w.c.seal(ctx, partition))
	case n == 5:
		return "retry " + partition, sentinel(w.s.Retry(ctx, partition)), sentinel(w.c.unfail(ctx, partition, sqlstore.Available))
	case n == 6:
		return "skip " + partition, sentinel(w.s.Skip(ctx, partition)), sentinel(w.c.unfail(ctx, partition, sqlstore.Complete))
	case n == 7:
		w.expire(true)
		return "expire", "", ""
	case n == 8 && w.r.IntN(2) == 0:
		return both("soonest", func(s engine.Tables) string {
			wait, err := s.Soonest(ctx, as)
			return fmt.Sprint(wait == sqlstore.ClaimEvery, wait > sqlstore.ClaimEvery, err)
		})
	case n == 8:
		return both("waiting", func(s engine.Tables) string { n, err := s.Waiting(ctx, as, 10); return fmt.Sprint(n, err) })
	case n == 9:
		return both("claim", func(s engine.Tables) string { ok, err := s.Claim(ctx, as); return fmt.Sprint(ok, err) })
	case n < 13 || len(w.leases) == 0:
		return both("acquire", func(s engine.Tables) string {
			leases, err := s.Acquire(ctx, as, 10, nil)
			slices.SortFunc(leases, func(a, b sqlstore.Taken) int { return strings.Compare(a.ID, b.ID) })
			if s == engine.Tables(w.s.sql) {
				w.leases = append(w.leases, leasesOf(leases)...)
			}
			return fmt.Sprint(leases, err)
		})
	case n == 13:
		held := w.leases[max(0, len(w.leases)-4):]
		return both("renew", func(s engine.Tables) string {
			claimed, err := s.Renew(ctx, as, held)
			return fmt.Sprint(claimed, err)
		})
	case n == 14:
		some := takenOf(w.lease(), w.lease())
		some[0].Over = w.r.IntN(2) == 0
		some[1].Over = some[0].Over
		return both(fmt.Sprint("release ", some), func(s engine.Tables) string { return fmt.Sprint(s.Release(ctx, as, some)) })
	case n < 17:
		l := w.lease()
		return both(fmt.Sprint("settle ", l), func(s engine.Tables) string { o, gate, err := s.Settle(ctx, as, l); return fmt.Sprint(o, gate, err) })
	case n == 17 || len(w.fetched) == 0:
		return w.fetch(as)
	}
	return w.save(as)
}

// lease is one of the last that were taken, often of a lost epoch.
func (w *twins) lease() sqlstore.Lease {
	return w.leases[len(w.leases)-1-w.r.IntN(min(4, len(w.leases)))]
}

func (w *twins) fetch(as sqlstore.Terms) (what, store, model string) {
	asked := sqlstore.Want{Lease: w.lease(), Limit: 1 + w.r.IntN(5), Bytes: 1 + w.r.IntN(20)}
	of := func(s engine.Tables) ([]Item, string) {
		items, err := s.Fetch(w.t.Context(), as, []sqlstore.Want{asked})
		text := fmt.Sprint(err)
		var list []Item
		for i := range items {
			it := itemOf(&items[i])
			it.seq = 0
			list = append(list, it)
			history := it.History()
			it.history = nil // an address
			text += fmt.Sprintf(" %+v %v", it, history)
		}
		return list, text
	}
	items, store := of(w.s.sql)
	_, model = of(w.c)
	w.fetched = append(w.fetched, items...)
	return fmt.Sprint("fetch ", asked, as), store, model
}

func (w *twins) save(as sqlstore.Terms) (what, store, model string) {
	var results []sqlstore.Result
	for range 1 + w.r.IntN(3) {
		it := w.fetched[len(w.fetched)-1-w.r.IntN(min(6, len(w.fetched)))]
		r := sqlstore.Result{Lease: w.lease(), Item: it.ID, Version: it.Version, Gate: it.Gate, Status: sqlstore.Complete, Attempt: 1, Steps: 1}
		r.ID = it.Partition
		switch w.r.IntN(4) {
		case 0:
			r.Status, r.Steps, r.Errors = sqlstore.Failed, 0, new(`["broken"]`)
			r.History = new(fmt.Sprint("broken ", w.r.IntN(100)))
		case 1:
			r.Status, r.Attempt, r.Gate = sqlstore.Available, 0, r.Gate+w.r.IntN(2)
		case 2:
			r.Status, r.Steps, r.Crashes = sqlstore.Available, 0, new(w.r.Int64N(3))
		}
		if slices.ContainsFunc(results, func(other sqlstore.Result) bool { return other.ID == r.ID && other.Item == r.Item }) {
			continue // an engine has an item once
		}
		results = append(results, r)
	}
	of := func(s engine.Tables) string {
		saved, err := s.Save(w.t.Context(), as, results)
		return fmt.Sprint(saved, err)
	}
	return fmt.Sprintf("save %+v %v", results, as), of(w.s.sql), of(w.c)
}

// expire ends all leases, or else the time for which a released partition is kept for whoever claimed it.
func (w *twins) expire(all bool) {
	past := time.Now().Add(-time.Hour)
	db := w.s.sql.DB.Table("partitions").Where("claimant <> '' AND (owner IS NULL OR owner = '')")
	if all {
		db = w.s.sql.DB.Table("partitions").Where("owner <> ''")
	}
	require.NoError(w.t, db.Update("until", past).Error)
	for _, p := range w.c.partitions {
		if owned := text(p.Owner) != ""; owned == all && (all || text(p.Claimant) != "") {
			p.Until = &sqlstore.RowTime{Time: past}
		}
	}
}

func sentinel(err error) string {
	for _, known := range []error{ErrNotFound, ErrClosed, ErrGatePassed, ErrDuplicate, ErrNotDone, ErrConflict} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

func (w *twins) storeTables() (lines []string) {
	var partitions []sqlstore.Partition
	var items []sqlstore.Item
	require.NoError(w.t, w.s.sql.DB.Order("id").Find(&partitions).Error)
	require.NoError(w.t, w.s.sql.DB.Order("partition_id, seq").Find(&items).Error)
	return tableLines(partitions, items)
}

func (w *twins) modelTables() (lines []string) {
	var partitions []sqlstore.Partition
	var items []sqlstore.Item
	for _, id := range sortedKeys(w.c.partitions) {
		partitions = append(partitions, *w.c.partitions[id])
		for _, it := range w.c.items[id] {
			items = append(items, *it)
		}
	}
	return tableLines(partitions, items)
}

func number(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

func tableLines(partitions []sqlstore.Partition, items []sqlstore.Item) (lines []string) {
	for _, p := range partitions {
		lines = append(lines, fmt.Sprint(p.ID, p.Gate, p.Status, text(p.Owner), p.Epoch, p.Sealed, p.Version, text(p.Claimant)))
	}
	for _, it := range items {
		lines = append(lines, fmt.Sprint(it.PartitionID, it.ID, it.Gate, it.Status, it.Attempt, it.Step, text(it.Errors), text(it.History),
			it.Version, number(it.Crashes)))
	}
	return lines
}
