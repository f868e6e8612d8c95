package feed

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGatesThatOpenLater: a gate opens at its time and not before, counted from the end of all below for OpenAfter, and no
// processor gets what keeps it closed. The items below do not wait.
func TestGatesThatOpenLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.create(Partition{ID: "p"})
		begin := time.Now()
		require.NoError(t, c.insert(t.Context(), "p", Item{ID: "a"}, OpenAfter(2, time.Minute), Item{ID: "b", Gate: 2},
			OpenAt(4, begin.Add(5*time.Minute)), Item{ID: "with", Gate: 3}, Item{ID: "c", Gate: 4}))
		require.NoError(t, c.seal(t.Context(), "p"))
		began := map[string]time.Duration{}
		calls := make(chan string, 10)
		slow := ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			began[it.ID] = time.Since(begin)
			calls <- it.ID
			if it.ID == "a" {
				time.Sleep(time.Minute)
			}
			return done()
		})
		onModel(t, c, slow, []WatcherOption{AutoClose(), Concurrency(1)}, func(*Watcher) {
			time.Sleep(6 * time.Minute)
			require.Len(t, calls, 4)
			require.Less(t, began["a"], time.Second)
			require.InDelta(t, 2*time.Minute, began["b"], float64(time.Second), "a minute after a has ended")
			require.GreaterOrEqual(t, began["b"], 2*time.Minute)
			require.InDelta(t, 2*time.Minute, began["with"], float64(time.Second), "it does not wait at its gate")
			require.InDelta(t, 5*time.Minute, began["c"], float64(time.Second))
			require.GreaterOrEqual(t, began["c"], 5*time.Minute)
			require.True(t, c.partitions["p"].Status == string(Complete))
		})
	})
}

// TestTimersAreStored: a gate that opens later does so also after a restart, on each database.
func TestTimersAreStored(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p", Sealed: true}, OpenAfter(1, 20*time.Millisecond), OpenAt(1, time.Now().Add(-time.Hour)), OpenAt(1, time.Time{}),
			Item{ID: "a", Gate: 1})
		first := startWatcher(t, s, ProcessorFunc(func(context.Context, Item) (Response, error) { return Response{}, errFailed }), MaxRetries(-1))
		eventually(t, "the first watcher has passed the gate", func() bool {
			p, err := s.Partition(t.Context(), "p")
			return err == nil && p.Gate == 1
		})
		require.NoError(t, first.stop(t))
		got, w := processed(t, s, AutoClose())
		awaitItem(t, got, "p/a")
		awaitPartition(t, s, "p", Complete)
		require.NoError(t, w.stop(t))
		require.Empty(t, got)
	})
	s := openStore(t, backends[0].fresh(t))
	create(t, s, Partition{ID: "q", Gate: 2})
	require.ErrorIs(t, s.Insert(t.Context(), "q", OpenAfter(2, time.Hour)), ErrGatePassed, "it is open")
	for d, want := range map[time.Duration]string{
		-time.Second: "OpenAfter: -1s is not in 0..8760h0m0s", 2 * maxDelay: "OpenAfter: 17520h0m0s is not in 0..",
	} {
		err := s.Insert(t.Context(), "q", OpenAfter(4, d))
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, s.Insert(t.Context(), "q", OpenAfter(4, math.MaxInt64)), ErrInvalid)
	require.ErrorIs(t, s.Insert(t.Context(), "q", OpenAfter(4, math.MinInt64)), ErrInvalid)
	require.ErrorIs(t, s.Insert(t.Context(), "q", OpenAt(4, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC))), ErrInvalid)
	require.NoError(t, s.Insert(t.Context(), "q", OpenAt(4, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))))
}
