package operation

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// keeper counts how often each key was kept.
type keeper struct {
	bucketOf
	mu   sync.Mutex
	kept map[string]int
}

func (k *keeper) Put(_ context.Context, key string, _ []byte) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[key]++
	return 1, nil
}

// Each value is kept once, also one that is set while the earlier ones are read.
func TestEachValueIsKept(t *testing.T) {
	const values = 200
	s := NewStore("log.", 100, func(_, _ int) bool { return false })
	k := &keeper{bucketOf: bucketOf{}, kept: map[string]int{}}
	var all sync.WaitGroup
	for i := range values {
		all.Go(func() { _ = s.Set(t.Context(), strconv.Itoa(1000+i), i) })
		if i == values/2 {
			all.Go(func() { _ = s.Restore(t.Context(), k) })
		}
	}
	all.Wait()
	require.Len(t, s.All(), 100)
	_, ok := s.Get(strconv.Itoa(1000 + values - 1))
	require.True(t, ok, "those of the greatest keys stay")
	for name, n := range k.kept {
		require.Equal(t, 1, n, name)
	}
	require.GreaterOrEqual(t, len(k.kept), 100)
}

// A value that is not kept does not count.
func TestAValueThatIsNotKept(t *testing.T) {
	s := NewStore("seen.", 0, func(_, _ int) bool { return false })
	require.NoError(t, s.Restore(t.Context(), full{bucketOf{"seen.a": {Data: []byte("7")}, "seen.b": {Data: []byte("x")}}}))
	require.ErrorContains(t, s.Set(t.Context(), "a", 8), "keep seen.a: no room")
	require.Equal(t, map[string]int{"a": 7}, s.All())
	s.Hold("a", 9)
	require.Equal(t, map[string]int{"a": 9}, s.All())
	early := NewStore("seen.", 0, func(_, _ int) bool { return true })
	require.NoError(t, early.Set(t.Context(), "a", 5))
	require.ErrorContains(t, early.Restore(t.Context(), full{bucketOf{"seen.a": {Data: []byte("7")}}}), "no room")
	require.Equal(t, map[string]int{"a": 5}, early.All(), "the later one counts")
}

// full takes no value.
type full struct{ bucketOf }

func (full) Put(context.Context, string, []byte) (uint64, error) { return 0, errors.New("no room") }
