package jetpull

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A number that is left out is a delivery that did not arrive. A lower one is of a consumer that was reset or recreated.
func TestMissedDeliveries(t *testing.T) {
	g := gaps{next: 1}
	for _, n := range []uint64{1, 2, 3} {
		g.note(n)
	}
	require.Zero(t, g.missed.Load())
	g.note(6)
	require.Equal(t, uint64(2), g.missed.Load())
	g.note(7)
	g.note(1)
	g.note(2)
	require.Equal(t, uint64(2), g.missed.Load())
}
