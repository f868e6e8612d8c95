package sim

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

// A message that waits for its receiver is submitted again after the queue's duplicate window. The queue has it only once: when
// it has failed and is taken off the list, it does not reappear.
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
		config := store.ReceiverConfig{PostEndpoint: "http://r0/post", Paused: true}
		c := store.Receiver{Named: store.Named{Name: "r0"}, ReceiverConfig: config, Timeout: receiverTimeout}
		require.NoError(t, s.Receivers.Put(t.Context(), c))
		for range 3 {
			require.True(t, w.submit(w.chance("submit"), "a", "1", "r0"))
			<-time.After(3 * time.Minute)
		}
		waiting, err := s.Backlog(t.Context(), store.ToReceiver, "r0")
		require.NoError(t, err)
		require.EqualValues(t, 1, waiting)

		c, err = s.Receivers.Read(t.Context(), "r0")
		require.NoError(t, err)
		c.Paused = false
		require.NoError(t, s.Receivers.Put(t.Context(), c))
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

// A process dies between the record of a message and its entry, so that the sender gets no answer. When the sender sends the
// message again, it is delivered once.
func TestSentAgainAfterACrash(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		first, second := w.start(0), w.start(1)
		w.processes = []*process{first}
		w.add(newReceiver("r0"), 0)
		work.OnCrashpoint(func(node, point string) {
			if node == first.workers.Node && point == "after-create" {
				w.kill(first)
				runtime.Goexit()
			}
		})
		require.False(t, w.submit(w.chance("first"), "a", "1", "r0"))
		<-time.After(time.Hour)
		v, err := second.store.Load(t.Context(), "a", "1")
		require.NoError(t, err)
		require.Equal(t, machine.Arrived, v.Status)
		w.processes = []*process{second}
		require.True(t, w.submit(w.chance("second"), "a", "1", "r0"))
		<-time.After(time.Minute)
		require.Len(t, w.receivers["r0"].posts, 1)
	})
}
