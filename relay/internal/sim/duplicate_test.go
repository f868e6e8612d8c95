package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// A message that waits for its receiver is handed in again long after the queue knows that it has it. It waits there once:
// when it has failed and is taken off the list, it does not come back.
func TestDuplicateOfWhatWaits(t *testing.T) {
	ats.Register()
	defer ats.Unregister()
	natstest.EmptyTimerPool()
	synctest.Test(t, func(t *testing.T) {
		w := emptyWorld(t, 1)
		w.faults = false
		w.processes = []*process{w.start(0)}
		s := w.processes[0].store
		e := newReceiver("r0")
		e.denied = 100
		w.receivers["r0"] = e
		c := store.Receiver{Name: "r0", PostEndpoint: "http://r0/post", Timeout: receiverTimeout, Paused: true}
		require.NoError(t, s.PutReceiver(t.Context(), c))
		for range 3 {
			require.True(t, w.submit(w.chance("submit"), "a", "1", "r0"))
			<-time.After(3 * time.Minute)
		}
		waiting, err := s.Backlog(t.Context(), store.ToReceiver, "r0")
		require.NoError(t, err)
		require.EqualValues(t, 1, waiting)

		c, err = s.ReadReceiver(t.Context(), "r0")
		require.NoError(t, err)
		c.Paused = false
		require.NoError(t, s.PutReceiver(t.Context(), c))
		<-time.After(time.Minute)
		items, err := s.ListFailed(t.Context(), store.Filter{}, 0, 0)
		require.NoError(t, err)
		require.Len(t, items, 1)
		require.NoError(t, s.Settle(t.Context(), &items[0], store.Purge, false))
		<-time.After(time.Hour)
		items, err = s.ListFailed(t.Context(), store.Filter{}, 0, 0)
		require.NoError(t, err)
		require.Empty(t, items)
		require.Len(t, e.posts, 1)
		w.close()
	})
}
