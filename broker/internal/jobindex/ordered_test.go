package jobindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The set is compared with a sorted slice under random insertions and removals.
func TestOrderedSetAgainstSlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var set orderedSet[key]
	var model []key
	compare := func(a, b key) int {
		switch {
		case a.less(b):
			return -1
		case b.less(a):
			return 1
		}
		return 0
	}
	for step := range 40_000 {
		k := key{int64(rng.IntN(4)), uint64(rng.IntN(3000))}
		i, found := slices.BinarySearchFunc(model, k, compare)
		if step%7 < 4 || step < 4000 {
			if set.insert(k) == found {
				t.Fatalf("step %d: insert %v, found before: %v", step, k, found)
			}
			if !found {
				model = slices.Insert(model, i, k)
			}
		} else {
			if set.remove(k) != found {
				t.Fatalf("step %d: remove %v, found before: %v", step, k, found)
			}
			if found {
				model = slices.Delete(model, i, i+1)
			}
		}
		if set.len() != len(model) {
			t.Fatalf("step %d: %d keys, not %d", step, set.len(), len(model))
		}
		if step%500 == 0 && len(model) > 0 {
			checkOrder(t, &set, model, key{int64(rng.IntN(4)), uint64(rng.IntN(3000))})
		}
	}
	for _, k := range slices.Clone(model) {
		require.True(t, set.remove(k))
	}
	require.Empty(t, set.chunks)
}

func checkOrder(t *testing.T, set *orderedSet[key], model []key, from key) {
	t.Helper()
	require.Equal(t, model[0], set.first())
	var up, down, after, before []key
	up = slices.AppendSeq(up, set.ascend(nil))
	down = slices.AppendSeq(down, set.descend(nil))
	after = slices.AppendSeq(after, set.ascend(&from))
	before = slices.AppendSeq(before, set.descend(&from))
	require.Equal(t, model, up)
	slices.Reverse(down)
	require.Equal(t, model, down)
	slices.Reverse(before)
	var wantAfter, wantBefore []key
	for _, k := range model {
		switch {
		case k.less(from):
			wantBefore = append(wantBefore, k)
		case from.less(k):
			wantAfter = append(wantAfter, k)
		}
	}
	require.Equal(t, wantAfter, after)
	require.Equal(t, wantBefore, before)
}

// Keys arrive almost in order at the end of each priority, because writes overtake each other. They must not leave chunks half
// empty.
func TestOrderedSetFillsItsChunks(t *testing.T) {
	const n, overtaking = 100_000, 64
	for _, priorities := range []int64{1, 5} {
		random := rand.New(rand.NewPCG(1, 2))
		keys := make([]key, n)
		for i := range keys {
			keys[i] = key{-random.Int64N(priorities), uint64(i)}
		}
		for i := 0; i < n; i += overtaking {
			window := keys[i:min(i+overtaking, n)]
			random.Shuffle(len(window), func(i, j int) { window[i], window[j] = window[j], window[i] })
		}
		var s orderedSet[key]
		for _, k := range keys {
			require.True(t, s.insert(k))
		}
		capacity := 0
		for _, c := range s.chunks {
			capacity += cap(c)
		}
		require.Less(t, float64(capacity)/n, 1.2, "%d priorities: capacity for a key, in keys", priorities)
		slices.SortFunc(keys, func(a, b key) int {
			if a.less(b) {
				return -1
			}
			return 1
		})
		got := make([]key, 0, n)
		got = slices.AppendSeq(got, s.ascend(nil))
		require.Equal(t, keys, got)
	}
}
