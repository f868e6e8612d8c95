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
)

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
	eventually(t, func() error {
		if n := runtime.NumGoroutine(); n > goroutines {
			return fmt.Errorf("%d goroutines, %d before", n, goroutines)
		}
		return nil
	}, "goroutines")
	// A drained inbox is gone a moment later.
	eventually(t, func() error {
		if n := r.nc.NumSubscriptions(); n > subscriptions {
			return fmt.Errorf("%d subscriptions, %d before", n, subscriptions)
		}
		return nil
	}, "subscriptions")
	require.Less(t, heap(), memory+2<<20, "the heap grew by more than 2 MiB, or 2 KiB a round")
	eventually(t, func() error {
		if n := sub.Stats().Outstanding; n != 0 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	}, "nothing is outstanding")
	stats := sub.Stats()
	require.Zero(t, stats.Buffered+stats.Running+stats.Window)
}
