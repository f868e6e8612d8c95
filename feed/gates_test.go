package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// TestGates walks a partition through its gates.
func TestGates(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, _ string) {
		auto := theTerms
		auto.autoClose = true
		create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "b"}, Item{ID: "c", Gate: 7})
		l := leaseOne(t, s, auto)
		require.Equal(t, 0, settleAs(t, s, auto, l, again), "items are left")
		at0 := fetchAll(t, s, auto, l)
		require.Equal(t, []string{"a", "b"}, ids(at0))
		require.True(t, end(t, s, auto, l, at0[0], Complete))
		require.True(t, end(t, s, auto, l, at0[1], Failed))
		settleAs(t, s, auto, l, blocked)
		rows, err := s.acquire(t.Context(), auto, 1, nil)
		require.NoError(t, err)
		require.Empty(t, rows, "a blocked gate is no work")
		require.NoError(t, s.Retry(t.Context(), "p"))
		l = leaseOne(t, s, auto)
		b := fetchAll(t, s, auto, l)[0]
		require.Equal(t, 0, b.Attempt)
		require.Empty(t, b.Errors)
		require.True(t, end(t, s, auto, l, b, Complete))
		require.Equal(t, 7, settleAs(t, s, auto, l, passed))
		c := fetchAll(t, s, auto, l)[0]
		require.ErrorIs(t, s.Insert(t.Context(), "p", Item{Gate: 6}), ErrGatePassed)
		require.True(t, end(t, s, auto, l, c, Complete))
		settleAs(t, s, auto, l, idle) // not sealed
		require.NoError(t, s.Seal(t.Context(), "p"))
		settleAs(t, s, auto, leaseOne(t, s, auto), closed)
		require.ErrorIs(t, s.Insert(t.Context(), "p", Item{Gate: 8}), ErrClosed)

		manual := theTerms
		manual.manual = true
		create(t, s, Partition{ID: "m"}, Item{ID: "a"}, Item{ID: "b", Gate: 1})
		l = leaseOne(t, s, manual)
		require.True(t, end(t, s, manual, l, fetchAll(t, s, manual, l)[0], Complete))
		settleAs(t, s, manual, l, idle)
		rows, err = s.acquire(t.Context(), manual, 1, nil)
		require.NoError(t, err)
		require.Empty(t, rows, "the gate waits for the call")
		require.NoError(t, s.Advance(t.Context(), "m", 1))
		l = leaseOne(t, s, manual)
		require.Equal(t, []string{"b"}, ids(fetchAll(t, s, manual, l)))
	})
}

// TestInsertsRaceGatesAndSeals: whatever an insert meets, an item that was taken is above or at the gate, and
// none is in a closed partition that is not Complete.
func TestInsertsRaceGatesAndSeals(t *testing.T) {
	const inserters = 8
	perInserter := 1000
	if testing.Short() {
		perInserter = 60
	}
	onEach(t, func(t *testing.T, s *Store, _ string) {
		auto := theTerms
		auto.autoClose = true
		create(t, s, Partition{ID: "p"}, Item{})
		var taken, refused atomic.Int64
		var wg sync.WaitGroup
		for range inserters {
			wg.Go(func() {
				gate := 0
				for i := range perInserter {
					switch err := s.Insert(t.Context(), "p", Item{Gate: gate + i%3}); {
					case err == nil:
						taken.Add(1)
					case errors.Is(err, ErrGatePassed):
						refused.Add(1)
						p, err := s.Partition(t.Context(), "p")
						if err != nil {
							t.Error(err)
							return
						}
						gate = p.Gate
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		inserted := make(chan struct{})
		go func() { wg.Wait(); _ = s.Seal(context.WithoutCancel(t.Context()), "p"); close(inserted) }()
		processed := drain(t, s, auto, inserted)
		require.EqualValues(t, taken.Load()+1, processed)
		t.Logf("%d taken, %d refused", taken.Load(), refused.Load())
		require.ErrorIs(t, s.Insert(t.Context(), "p", Item{Gate: 1 << 20}), ErrClosed)
	})
}

// drain completes everything until the partition is closed and returns how many items that were. A handler at a
// gate checks that nothing below it is left.
func drain(t *testing.T, s *Store, as terms, inserted <-chan struct{}) (processed int) {
	t.Helper()
	for {
		rows, err := s.acquire(t.Context(), as, 1, nil)
		require.NoError(t, err)
		if len(rows) == 0 {
			p, err := s.Partition(t.Context(), "p")
			require.NoError(t, err)
			if p.Status == Complete {
				<-inserted
				return processed
			}
			continue
		}
		l := rows[0]
		for next := again; next == again || next == passed; {
			items := fetchAll(t, s, as, l)
			var results []result
			for _, it := range items {
				results = append(results, result{lease: l, item: it, gate: it.Gate, status: Complete, stepped: true})
			}
			if len(items) > 0 {
				below, err := s.has(s.db.Session(&gorm.Session{}), "p", "status = 'Available' AND gate < ?", items[0].Gate)
				require.NoError(t, err)
				require.False(t, below, "an item below the gate")
				saved, err := s.save(t.Context(), as, results)
				require.NoError(t, err)
				require.NotContains(t, saved, false)
				processed += len(items)
			}
			next, _, err = s.settle(t.Context(), as, l)
			require.NoError(t, err)
		}
	}
}

// TestClaims: a claimed partition is handed over and not taken.
func TestClaims(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, _ string) {
		for i := range 4 {
			create(t, s, Partition{ID: fmt.Sprint("p", i)}, Item{})
		}
		rows, err := s.acquire(t.Context(), theTerms, 10, nil)
		require.NoError(t, err)
		require.Len(t, rows, 4)
		other := theTerms.as("other")
		for _, want := range []bool{true, true, false} {
			asked, err := s.claim(t.Context(), other)
			require.NoError(t, err)
			require.Equal(t, want, asked)
		}
		_, claimed, err := s.renew(t.Context(), theTerms, []lease{{"p0", 1}, {"p1", 1}, {"p2", 1}, {"p3", 1}})
		require.NoError(t, err)
		require.Equal(t, map[lease]bool{{"p0", 1}: true, {"p1", 1}: true}, claimed)
		require.NoError(t, s.release(t.Context(), theTerms, []string{"p0"}))
		none, err := s.acquire(t.Context(), theTerms, 10, nil)
		require.NoError(t, err)
		require.Empty(t, none, "it waits for who claimed it")
		got, err := s.acquire(t.Context(), other, 10, nil)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, "p0", got[0].id)
	})
}
