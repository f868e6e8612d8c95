package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A message that the stream has removed because of its age is not on the list, and takes no memory.
func TestIndexForgetsByAge(t *testing.T) {
	now := time.Now()
	s := &Failed{base: &base{}}
	s.index.clear()
	s.clock.Set(now, now)
	old := now.Add(-failedAge - time.Minute)
	for seq, at := range []time.Time{old, old, now, now} {
		subject := string(rune('a' + seq))
		s.index.add(subject, &Item{Seq: uint64(seq + 1), Receiver: "ci", Time: at})
	}
	s.index.add("a", nil) // redriven long ago
	depth, oldest := s.FailedDepth()
	require.Equal(t, map[string]int{"ci": 2}, depth)
	require.Equal(t, now, oldest)
	require.Len(t, s.index.bySubject, 2)
	require.Len(t, s.index.order, 2)
	require.Len(t, s.index.list(Filter{}, 0, 0), 2)

	s.index.forget(now.Add(time.Minute))
	require.Empty(t, s.index.order)
	require.Empty(t, s.index.depth)
	require.Empty(t, s.index.bySubject)
}
