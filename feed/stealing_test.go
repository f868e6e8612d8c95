package feed

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStealing: a watcher that comes later gets its share, and nothing is processed twice.
func TestStealing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		const partitions = 8
		for p := range partitions {
			create(t, s, Partition{ID: fmt.Sprint("p", p)}, make([]Item, 200)...)
		}
		var mu sync.Mutex
		calls := map[string]int{}
		endless := ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[fmt.Sprint(it.Partition, it.ID, it.Version)]++
			return Response{}, nil
		})
		owners := func() map[string]int {
			list, err := s.Partitions(t.Context(), Query{})
			require.NoError(t, err)
			n := map[string]int{}
			for _, p := range list {
				if p.Owner != "" {
					n[p.Owner]++
				}
			}
			return n
		}
		opts := []WatcherOption{Concurrency(2), Lease(2 * time.Second), Steal()}
		first := startWatcher(t, s, endless, opts...)
		eventually(t, "the first has all", func() bool {
			for _, n := range owners() {
				return n == partitions
			}
			return false
		})
		second := startWatcher(t, s, endless, opts...)
		eventually(t, "both have half", func() bool {
			n := owners()
			for _, v := range n {
				if v != partitions/2 {
					return false
				}
			}
			return len(n) == 2
		})
		require.NoError(t, first.stop(t))
		require.NoError(t, second.stop(t))
		for call, n := range calls {
			require.Equal(t, 1, n, call)
		}
	})
}
