package jsstore

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A message whose job is being queued again is not deleted, and a job whose message is being deleted is queued again after
// that only. Other messages do not wait.
func TestDeleteAndReviveExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u inUse
		revived, err := u.revive(t.Context(), 1)
		require.NoError(t, err)
		another, err := u.revive(t.Context(), 1)
		require.NoError(t, err)
		revived()
		_, ok := u.delete(1)
		require.False(t, ok)
		another()
		deleted, ok := u.delete(1)
		require.True(t, ok)
		_, ok = u.delete(1)
		require.False(t, ok, "two at a time")

		other, err := u.revive(t.Context(), 65)
		require.NoError(t, err)
		other()
		cut, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = u.revive(cut, 1)
		require.ErrorIs(t, err, context.Canceled)

		waited := make(chan struct{})
		go func() {
			defer close(waited)
			if done, err := u.revive(t.Context(), 1); err == nil {
				done()
			}
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Fatal("revived while the message is deleted")
		default:
		}
		deleted()
		<-waited
		require.Empty(t, u.reviving)
		require.Empty(t, u.deleting)
	})
}
