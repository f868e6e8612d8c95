package jsstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// What a change of one consumer costs does not depend on how many there are: else
// the start is quadratic.
func TestAConsumerAmongManyCostsWhatOneDoes(t *testing.T) {
	const many = 5000
	told := 0
	r := newRegistry(nil, func(domain.Consumer, bool) { told++ })
	revision := uint64(0)
	put := func(i int) {
		revision++
		id := fmt.Sprint(i)
		r.take(consumerKey("ch", id), revision, &stored{ID: id, Channel: "ch", Number: uint32(i + 1)})
	}
	put(0)
	alone := testing.AllocsPerRun(10, func() { put(0) })
	for i := range many {
		put(i)
	}
	require.Less(t, testing.AllocsPerRun(10, func() { put(many / 2) }), alone+10)
	require.Len(t, r.byNumber, many)
	told = 0
	for i := range many {
		revision++
		r.take(consumerKey("ch", fmt.Sprint(i)), revision, nil)
	}
	require.Equal(t, many, told)
	require.Empty(t, r.byNumber)
	require.Empty(t, r.consumers["ch"])
}
