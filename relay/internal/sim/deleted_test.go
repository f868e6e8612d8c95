package sim

import (
	"context"
	"errors"
	"log/slog"
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

// inVirtualTime runs a test of a world without faults.
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

// deleteReceiver does as the route of that name.
func (p *process) deleteReceiver(name string) {
	r, ok := p.store.Receiver(name)
	require.True(p.w.t, ok)
	r.Deleted = true
	require.NoError(p.w.t, p.store.PutReceiver(context.Background(), r))
}

// A deleted receiver is forgotten by all processes an hour later, with its window, and not if it was configured again.
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
		require.NotEmpty(t, window.Owner)
		w.processes[0].deleteReceiver("gone")
		w.processes[1].deleteReceiver("back")
		<-time.After(30 * time.Minute)
		for _, p := range w.processes {
			_, known := p.store.Receiver("gone")
			require.True(t, known, "it is forgotten too early")
		}
		back, _ := s.Receiver("back")
		back.Deleted = false
		require.NoError(t, s.PutReceiver(context.Background(), back))
		<-time.After(40 * time.Minute)
		for _, p := range w.processes {
			_, known := p.store.Receiver("gone")
			require.False(t, known, "it is not forgotten")
			_, known = p.store.Receiver("back")
			require.True(t, known, "a receiver that was configured again is forgotten")
		}
		window, err = s.Window(context.Background(), "gone")
		require.NoError(t, err)
		require.Zero(t, window.Revision, "its window stays")
		require.True(t, w.submit(r, "a", "2", "back"))
		<-time.After(time.Second)
		v, err := s.Load(context.Background(), "a", "2")
		require.NoError(t, err)
		require.Equal(t, machine.Responded, settled(v.Status), v.Record)
	})
}

// settled takes a message whose sender was called for one that has a response.
func settled(s machine.Status) machine.Status {
	if s == machine.Done {
		return machine.Responded
	}
	return s
}

// A process dies after it has created the record of a message and before the entry for its receiver. The receiver is deleted,
// and nobody runs for longer than the receiver is remembered. The next process fails the message: no lane would.
func TestMessageOfAForgottenReceiverFails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		p := w.start(0)
		w.processes = []*process{p}
		w.add(newReceiver("r0"), 0)
		<-time.After(time.Second)
		work.OnCrashpoint(func(node, point string) {
			if node == p.workers.Node() && point == "after-create" {
				w.kill(p)
				runtime.Goexit()
			}
		})
		w.publish(w.chance("play"), "a", "1", "r0")
		<-p.dead
		<-time.After(time.Minute)
		nc, only := w.open(slog.New(slog.DiscardHandler))
		r, err := only.ReadReceiver(context.Background(), "r0")
		require.NoError(t, err)
		r.Deleted = true
		require.NoError(t, only.PutReceiver(context.Background(), r))
		v, err := only.Load(context.Background(), "a", "1")
		require.NoError(t, err)
		require.Equal(t, machine.Arrived, v.Status)
		<-time.After(2 * time.Hour)
		w.processes[0] = w.start(0)
		<-time.After(time.Minute)
		v, err = only.Load(context.Background(), "a", "1")
		require.NoError(t, err)
		require.Equal(t, machine.Failed, v.Status)
		require.Equal(t, machine.ReceiverDeleted, v.Failure.Reason)
		_, err = only.ReadReceiver(context.Background(), "r0")
		require.True(t, errors.Is(err, store.ErrNotFound), err)
		only.Close()
		nc.Close()
	})
}
