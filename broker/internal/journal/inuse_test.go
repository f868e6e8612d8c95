package journal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A message is not deleted while one of its jobs is being queued again, and no job is queued again while its message is being
// deleted. Other messages are not affected.
func TestDeleteAndReviveExcludeEachOther(t *testing.T) {
	var u inUse
	begin := func(seq uint64, use int) func() {
		t.Helper()
		end, ok := u.begin(seq, use)
		require.True(t, ok)
		return end
	}
	refused := func(seq uint64, use int) {
		t.Helper()
		_, ok := u.begin(seq, use)
		require.False(t, ok)
	}
	revived, another := begin(1, 1), begin(1, 1)
	revived()
	refused(1, deleting)
	another()
	deleted := begin(1, deleting)
	refused(1, deleting)
	refused(1, 1)
	begin(65, 1)()
	deleted()
	begin(1, 1)()
	require.Empty(t, u.uses)
}
