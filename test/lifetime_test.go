package test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here follow a Subscription through what happens to it and to its consumer.

// Subscribe waits for the next connection if it loses its own.
func TestSubscribeWhileTheConnectionIsLost(t *testing.T) {
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{})
	proxy := natstest.NewProxy(t, r.server.URL())
	nc := connect(t, proxy.URL())
	js, subscribed := natstest.JetStream(t, nc), make(chan error)
	proxy.BlackHole(true)
	go func() {
		_, err := jetpull.Subscribe(t.Context(), js, "S", "C")
		subscribed <- err
	}()
	require.Eventually(t, func() bool { return nc.NumSubscriptions() > 0 }, time.Minute, time.Millisecond)
	proxy.BlackHole(false) // cuts the connection, which has lost bytes
	require.NoError(t, <-subscribed)
}

// TestStartAndStopLeaveNothing is not parallel: it counts what the process has.
func TestStartAndStopLeaveNothing(t *testing.T) {
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1})
	r.publish(t, 200)
	round := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := sub
		if i%10 == 0 {
			var err error
			s, err = jetpull.Subscribe(ctx, r.js, "S", "C")
			require.NoError(t, err)
		}
		if i%2 == 0 {
			require.NoError(t, s.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
				cancel()
				return m.Nak() // so that the next round has it
			}, jetpull.Concurrency(1+i%5), byKey))
		} else {
			for m, err := range s.Messages(ctx) {
				require.NoError(t, err)
				require.NoError(t, m.Nak())
				break
			}
		}
		if s != sub {
			require.NoError(t, s.Close(t.Context()))
		}
	}
	subscriptions := 0
	for i := range 100 { // so that pools are as full as they get
		round(i)
		subscriptions = max(subscriptions, r.nc.NumSubscriptions())
	}
	goroutines, memory := runtime.NumGoroutine(), heap()
	for i := range 1000 {
		round(i)
	}
	eventually(t, func() error { // a drained inbox is gone a moment later
		if g, n := runtime.NumGoroutine(), r.nc.NumSubscriptions(); g > goroutines || n > subscriptions {
			return fmt.Errorf("%d goroutines, %d before; %d subscriptions, %d before", g, goroutines, n, subscriptions)
		}
		return nil
	}, "what it had is gone")
	require.Less(t, heap(), memory+2<<20, "the heap grew by more than 2 MiB, or 2 KiB a round")
	statsBecome(t, sub, "nothing is held or outstanding", func(s jetpull.Stats) bool {
		return s.Outstanding+s.Buffered+s.Running+s.Window == 0
	})
}
