package sim

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

// inVirtualTime runs a test with a world without faults.
func inVirtualTime(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	ats.Register()
	defer ats.Unregister()
	natstest.EmptyTimerPool()
	synctest.Test(t, func(t *testing.T) {
		w := emptyWorld(t, 1)
		w.faults = false
		test(t, w)
		w.close()
	})
}

// deleteReceiver does the same as the route.
func (p *process) deleteReceiver(name string) {
	r := p.store.Receivers.Get(name)
	require.False(p.w.t, r.Gone())
	r.Deleted = true
	require.NoError(p.w.t, p.store.Receivers.Put(context.Background(), r))
	require.NoError(p.w.t, p.store.DropWindow(context.Background(), name))
}

// ttl returns how long the bucket keeps the entry of a receiver, or "" if it is kept for ever.
func ttl(t *testing.T, s *store.Store, name string) string {
	stream, err := s.JetStream().Stream(context.Background(), "KV_relay_receiver_config")
	require.NoError(t, err)
	m, err := stream.GetLastMsgForSubject(context.Background(), "$KV.relay_receiver_config.receiver."+name)
	require.NoError(t, err)
	return m.Header.Get(jetstream.MsgTTLHeader)
}

// For 30 days the bucket has an entry which says that a receiver was deleted, and all processes know it. The rate window is
// removed at once. A receiver that is configured again stays.
func TestDeletedReceiverIsForgotten(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		w.processes = []*process{w.start(0), w.start(1)}
		for _, name := range []string{"gone", "back"} {
			e := newReceiver(name)
			e.Limit, e.Window = 5, time.Minute
			w.add(e, 0)
		}
		r := w.chance("play")
		require.True(t, w.submit(r, "a", "1", "gone"))
		<-time.After(time.Second)
		s := w.processes[0].store
		window, err := s.Window(context.Background(), "gone")
		require.NoError(t, err)
		require.NotZero(t, window.Revision)
		w.processes[0].deleteReceiver("gone")
		w.processes[1].deleteReceiver("back")
		<-time.After(time.Minute)
		window, err = s.Window(context.Background(), "gone")
		require.NoError(t, err)
		require.Zero(t, window.Revision, "its window stays")
		for _, p := range w.processes {
			for _, name := range []string{"gone", "back"} {
				known := p.store.Receivers.Get(name)
				require.True(t, known.Deleted)
				require.Equal(t, (30 * 24 * time.Hour).String(), ttl(t, s, name))
			}
		}
		back := s.Receivers.Get("back")
		back.Deleted = false
		require.NoError(t, s.Receivers.Put(context.Background(), back))
		require.Empty(t, ttl(t, s, "back"), "a receiver that was configured again will be forgotten")
		require.True(t, w.submit(r, "a", "2", "back"))
		<-time.After(time.Second)
		v, err := s.Load(context.Background(), "a", "2")
		require.NoError(t, err)
		require.Equal(t, machine.Responded, settled(v.Status), v.Record)
	})
}

// settled treats a message whose callback was made as one that has a response.
func settled(s machine.Status) machine.Status {
	if s == machine.Done {
		return machine.Responded
	}
	return s
}

// forget removes the entry of a receiver, as the server does 30 days after it was deleted.
func forget(t *testing.T, s *store.Store, name string) {
	stream, err := s.JetStream().Stream(context.Background(), "KV_relay_receiver_config")
	require.NoError(t, err)
	require.NoError(t, stream.Purge(context.Background(), jetstream.WithPurgeSubject("$KV.relay_receiver_config.receiver."+name)))
}

// A process dies after it has created the record of a message and before the entry for its receiver. The receiver is deleted, and
// no process runs until the entry of the deleted receiver expires. The next process fails the message, since no lane would.
func TestMessageOfAForgottenReceiverFails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		p := w.start(0)
		w.processes = []*process{p}
		w.add(newReceiver("r0"), 0)
		<-time.After(time.Second)
		work.OnCrashpoint(func(node, point string) {
			if node == p.workers.Node && point == "after-create" {
				w.kill(p)
				runtime.Goexit()
			}
		})
		w.publish(w.chance("play"), "a", "1", "r0")
		<-p.dead
		<-time.After(time.Minute)
		nc, only := w.open(slog.New(slog.DiscardHandler))
		forget(t, only, "r0")
		v, err := only.Load(context.Background(), "a", "1")
		require.NoError(t, err)
		require.Equal(t, machine.Arrived, v.Status)
		w.processes[0] = w.start(0)
		<-time.After(time.Minute)
		v, err = only.Load(context.Background(), "a", "1")
		require.NoError(t, err)
		require.Equal(t, machine.Failed, v.Status)
		require.Equal(t, machine.ReceiverDeleted, v.Failure.Reason)
		only.Close()
		nc.Close()
	})
}
