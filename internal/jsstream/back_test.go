package jsstream

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever part of the sequences of a stream is left, Back visits each message once, from the newest on, and reads few of them twice: one request
// may bring one message.
func TestBackReadsFewMessagesTwice(t *testing.T) {
	const last, most = 100_000, 500
	for _, width := range []int{1, 60, 100, 500} {
		for _, every := range []uint64{1, 2, 3, 4, 7, 50, 1000} { // a message of so many is left
			for _, gap := range []uint64{0, last / 2} { // of the last ones, of which none is left
				read, visited := 0, []uint64{}
				next, n, err := Back(1, last, width, func(low, high uint64) (all []uint64, cut bool, err error) {
					for seq := low; seq <= high && seq <= last-gap && len(all) <= most; seq++ {
						if seq%every == 0 {
							all = append(all, seq)
						}
					}
					read += len(all)
					return all, len(all) > most, nil
				}, func(seq uint64) uint64 {
					visited = append(visited, seq)
					return 0
				}, func(int) bool { return false })
				require.NoError(t, err)
				require.Zero(t, next)
				require.Equal(t, int((last-gap)/every), n)
				require.Len(t, visited, n)
				require.True(t, slices.IsSortedFunc(visited, func(a, b uint64) int { return int(b) - int(a) }))
				require.LessOrEqual(t, read, n+6*most, "width %d, one of %d, a gap of %d", width, every, gap)
			}
		}
	}
}
