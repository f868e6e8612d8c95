package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// TestGates walks a partition through its gates.
func TestGates(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		auto := theTerms
		auto.AutoClose = true
		create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "b"}, Item{ID: "c", Gate: 7})
		l := leaseOne(t, s, auto)
		require.Equal(t, 0, settleAs(t, s, auto, l, sqlstore.Again), "items are left")
		at0 := fetchAll(t, s, auto, l)
		require.Equal(t, []string{"a", "b"}, ids(at0))
		require.True(t, end(t, s, auto, l, at0[0], Complete))
		require.True(t, end(t, s, auto, l, at0[1], Failed))
		settleAs(t, s, auto, l, sqlstore.Blocked)
		rows, err := s.sql.Acquire(t.Context(), auto, 1, nil)
		require.NoError(t, err)
		require.Empty(t, rows, "a blocked gate is no work")
		require.NoError(t, s.Retry(t.Context(), "p"))
		l = leaseOne(t, s, auto)
		b := fetchAll(t, s, auto, l)[0]
		require.Equal(t, 0, b.Attempt)
		require.Empty(t, b.Errors)
		require.True(t, end(t, s, auto, l, b, Complete))
		require.Equal(t, 7, settleAs(t, s, auto, l, sqlstore.Passed))
		c := fetchAll(t, s, auto, l)[0]
		require.ErrorIs(t, s.Insert(t.Context(), "p", Item{Gate: 6}), ErrGatePassed)
		require.True(t, end(t, s, auto, l, c, Complete))
		settleAs(t, s, auto, l, sqlstore.Idle) // not sealed
		require.NoError(t, s.Seal(t.Context(), "p"))
		settleAs(t, s, auto, leaseOne(t, s, auto), sqlstore.Closed)
		require.ErrorIs(t, s.Insert(t.Context(), "p", Item{Gate: 8}), ErrClosed)

		manual := theTerms
		manual.Manual = true
		create(t, s, Partition{ID: "m"}, Item{ID: "a"}, Item{ID: "b", Gate: 1})
		l = leaseOne(t, s, manual)
		require.True(t, end(t, s, manual, l, fetchAll(t, s, manual, l)[0], Complete))
		settleAs(t, s, manual, l, sqlstore.Idle)
		rows, err = s.sql.Acquire(t.Context(), manual, 1, nil)
		require.NoError(t, err)
		require.Empty(t, rows, "the gate waits for the call")
		require.NoError(t, s.Advance(t.Context(), "m", 1))
		l = leaseOne(t, s, manual)
		require.Equal(t, []string{"b"}, ids(fetchAll(t, s, manual, l)))
	})
}

// TestInsertAtBlockedGate: an item at the gate that a Failed one holds is processed, whether it was inserted before the gate
// was found blocked or after; one above the gate waits.
func TestInsertAtBlockedGate(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "a"})
		l := leaseOne(t, s, theTerms)
		require.True(t, end(t, s, theTerms, l, fetchAll(t, s, theTerms, l)[0], Failed))
		settleAs(t, s, theTerms, l, sqlstore.Blocked)
		require.NoError(t, s.Insert(t.Context(), "p", Item{ID: "above", Gate: 1}))
		p, err := s.Partition(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, Failed, p.Status)
		require.NoError(t, s.Insert(t.Context(), "p", Item{ID: "b"}))
		l = leaseOne(t, s, theTerms)
		items := fetchAll(t, s, theTerms, l)
		require.Equal(t, []string{"b"}, ids(items))
		require.True(t, end(t, s, theTerms, l, items[0], Complete))
		settleAs(t, s, theTerms, l, sqlstore.Blocked)
	})
}

// TestInsertsRaceGatesAndSeals: whatever an insert meets, an item that was taken is above or at the gate, and
// none is in a closed partition that is not Complete. The history says so, and the counts.
func TestInsertsRaceGatesAndSeals(t *testing.T) {
	t.Parallel()
	const inserters = 8
	rounds, perInserter := 10, 1250 // 100,000
	if testing.Short() {
		rounds, perInserter = 2, 40
	}
	onEach(t, func(t *testing.T, s *Store, dsn string) {
		h := newHistory(t, s, 16)
		var watchers []*running
		for range 2 {
			own := s
			if !s.sql.Dialect.OneWriter {
				own = openStore(t, dsn)
			}
			watchers = append(watchers, h.watch(t, own, finish, AutoClose()))
		}
		var passed, closed int64
		for round := range rounds {
			race := &insertRace{s: s, partition: fmt.Sprint("p", round), sealAt: int64(inserters * perInserter / 2)}
			create(t, s, Partition{ID: race.partition})
			var wg sync.WaitGroup
			for range inserters {
				wg.Go(func() {
					if err := race.insert(t.Context(), perInserter); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			awaitPartition(t, s, race.partition, Complete)
			n := 0
			for _, c := range counts(t, s, race.partition) {
				require.Zero(t, c.Available+c.Failed)
				n += c.Complete
			}
			require.EqualValues(t, race.taken.Load(), n)
			passed, closed = passed+race.passed.Load(), closed+race.closed.Load()
		}
		for _, w := range watchers {
			require.NoError(t, w.stop(t))
		}
		h.check(t)
		require.NotZero(t, closed)
		t.Logf("%d inserts, of which %d met a gate that had opened and %d a seal", rounds*inserters*perInserter, passed, closed)
	})
}

// insertRace is inserters of one partition, of whom the one that comes at sealAt seals it.
type insertRace struct {
	s                            *Store
	partition                    string
	sealAt                       int64
	calls, taken, passed, closed atomic.Int64
}

func (r *insertRace) insert(ctx context.Context, times int) error {
	gate := 0
	for i := range times {
		if r.calls.Add(1) == r.sealAt {
			if err := r.s.Seal(ctx, r.partition); err != nil {
				return err
			}
		}
		switch err := r.s.Insert(ctx, r.partition, Item{Gate: gate + i%3}); {
		case err == nil:
			r.taken.Add(1)
		case errors.Is(err, ErrClosed):
			r.closed.Add(1)
		case errors.Is(err, ErrGatePassed):
			r.passed.Add(1)
			p, err := r.s.Partition(ctx, r.partition)
			if err != nil {
				return err
			}
			gate = p.Gate
		default:
			return err
		}
	}
	return nil
}

// TestClaims: a claimed partition is handed over and not taken.
func TestClaims(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		for i := range 4 {
			create(t, s, Partition{ID: fmt.Sprint("p", i)}, Item{})
		}
		rows, err := s.sql.Acquire(t.Context(), theTerms, 10, nil)
		require.NoError(t, err)
		require.Len(t, rows, 4)
		other := termsOf("other")
		for _, want := range []bool{true, true, false} {
			asked, err := s.sql.Claim(t.Context(), other)
			require.NoError(t, err)
			require.Equal(t, want, asked)
		}
		claimed, err := s.sql.Renew(t.Context(), theTerms, []sqlstore.Lease{leaseOf("p0", 1), leaseOf("p1", 1), leaseOf("p2", 1), leaseOf("p3", 1)})
		require.NoError(t, err)
		require.Equal(t, map[sqlstore.Lease]sqlstore.Hold{
			leaseOf("p0", 1): sqlstore.Claimed, leaseOf("p1", 1): sqlstore.Claimed, leaseOf("p2", 1): sqlstore.Renewed, leaseOf("p3", 1): sqlstore.Renewed,
		}, claimed)
		require.NoError(t, s.sql.Release(t.Context(), theTerms, takenOf(leaseOf("p0", 1), leaseOf("p1", 1))))
		asked, err := s.sql.Claim(t.Context(), other)
		require.NoError(t, err)
		require.False(t, asked, "what is kept for it counts as its own")
		none, err := s.sql.Acquire(t.Context(), theTerms, 10, nil)
		require.NoError(t, err)
		require.Empty(t, none, "it waits for who claimed it")
		got, err := s.sql.Acquire(t.Context(), other, 10, nil)
		require.NoError(t, err)
		require.ElementsMatch(t, []sqlstore.Lease{leaseOf("p0", 2), leaseOf("p1", 2)}, leasesOf(got))
	})
}
