package due

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever is added when, each item is taken once, at its time and in the order of times.
func TestHeap(t *testing.T) {
	var h Heap[int]
	_, ok := h.Next()
	require.False(t, ok)
	_, ok = h.Pop(time.Now())
	require.False(t, ok)

	r := rand.New(rand.NewPCG(1, 2))
	begin := time.Unix(0, 0)
	var waits []int // seconds
	for second := range 1000 {
		now := begin.Add(time.Duration(second) * time.Second)
		for range r.IntN(4) {
			after := second + r.IntN(50)
			first := h.Add(begin.Add(time.Duration(after)*time.Second), after)
			require.Equal(t, len(waits) == 0 || after < slices.Min(waits), first)
			waits = append(waits, after)
		}
		for {
			got, ok := h.Pop(now)
			if !ok {
				break
			}
			require.Equal(t, slices.Min(waits), got)
			waits = slices.Delete(waits, slices.Index(waits, got), slices.Index(waits, got)+1)
		}
		require.Equal(t, len(waits), h.Len())
		if at, ok := h.Next(); ok {
			require.True(t, at.After(now), "it is due and was not taken")
			require.Equal(t, begin.Add(time.Duration(slices.Min(waits))*time.Second), at)
		}
	}
}
