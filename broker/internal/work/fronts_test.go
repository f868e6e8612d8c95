package work

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

func TestFronts(t *testing.T) {
	var f fronts
	now := time.Now()
	places := func(consumer uint32, names ...string) (all []int) {
		for _, name := range names {
			all = append(all, f.place(consumer, name, now))
		}
		return all
	}
	require.Equal(t, []int{0, 0, 0}, places(1, "a", "b", "c"), "somebody who asks once begins at the head")
	require.Equal(t, []int{0, 1, 2, 1, 0}, places(1, "a", "b", "c", "b", "a"))
	require.Equal(t, []int{0, 0}, places(2, "c", "c"), "each queue has places of its own")
	require.Equal(t, []int{0, 0, 0}, places(1, "x", "y", "z"), "and those who ask once move nobody")
	require.Equal(t, []int{0, 1, 2}, places(1, "a", "b", "c"))

	now = now.Add(frontExpiry)
	require.Equal(t, []int{1, 2}, places(1, "b", "c"))
	now = now.Add(time.Nanosecond)
	require.Equal(t, []int{0, 1}, places(1, "b", "c"), "a is gone")

	now = now.Add(time.Hour)
	for i := range 2 * callerMost {
		require.Zero(t, f.place(3, fmt.Sprint(i), now))
	}
	require.Len(t, f.callers[3], callerMost)
	for i := range callerMost {
		require.Equal(t, i%frontsMost, f.place(3, fmt.Sprint(i), now))
	}
}

func TestFrom(t *testing.T) {
	var queue []domain.Job
	for i := range 10 {
		queue = append(queue, domain.Job{ID: domain.JobID{Seq: uint64(i)}})
	}
	for _, tt := range []struct {
		queued, place, limit int
		want                 []uint64
	}{
		{10, 0, 3, []uint64{0, 1, 2}},
		{10, 1, 3, []uint64{3, 4, 5}},
		{10, 3, 3, []uint64{9, 0, 1}},
		{10, 7, 3, []uint64{1, 2, 3}},
		{2, 1, 3, []uint64{1, 0}},
		{1, 5, 3, []uint64{0}},
		{0, 2, 3, nil},
		{10, 2, 0, nil},
	} {
		var got []uint64
		// The store returns no more jobs than requested.
		for _, j := range startingAt(queue[:min(tt.queued, (tt.place+1)*tt.limit)], tt.place, tt.limit) {
			got = append(got, j.ID.Seq)
		}
		require.Equal(t, tt.want, got, "%+v", tt)
	}
}
