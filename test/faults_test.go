package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here break the connection or the server under a call.

func TestCallsOutliveACut(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	next, fetch := call(t.Context(), w.sub, 0, jetpull.MaxWait(forever)), call(t.Context(), w.sub, 5, jetpull.MaxWait(forever), jetpull.Heartbeat(time.Second))
	w.waiting(t, 2)
	for cuts := uint64(1); cuts <= 3; cuts++ {
		w.proxy.Cut()
		statsBecome(t, w.sub, "reconnected", func(s jetpull.Stats) bool { return s.Reconnects >= cuts })
	}
	require.Empty(t, next)
	require.Empty(t, fetch)
	w.publish(t, 1)
	natstest.Publish(t, w.js, "s.b", 1)
	got := append(served(t, next, "message after the cuts"), served(t, fetch, "message after the cuts")...)
	require.Len(t, got, 2)
	ackAll(t, got...)
	w.ackPending(t, 0)
}

func TestServerRestartWithinTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	r.publish(t, 2)
	fill := call(t.Context(), sub, 5, jetpull.FillBatch(), jetpull.MaxWait(forever))
	r.ackPending(t, 2)
	next := call(t.Context(), sub, 0, jetpull.MaxWait(forever), jetpull.Heartbeat(500*time.Millisecond))
	r.waiting(t, 2)
	r.server.Restart()
	r.publishSoon(t, 4)
	var h history
	h.note(t, served(t, fill, "the whole batch over a restart")...)
	require.Equal(t, 5, h.seen.len())
	h.note(t, served(t, next, "message after the restart")...)
	require.Equal(t, 6, h.seen.len())
	r.ackPending(t, 0)
}

// A connection that does not come back ends the calls.
func TestConnectionThatDoesNotReconnect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{})
	proxy := natstest.NewProxy(t, r.server.URL())
	sub := subscribe(t, natstest.JetStream(t, connect(t, proxy.URL(), nats.NoReconnect())), "S", "C")
	waiting := call(t.Context(), sub, 5, jetpull.MaxWait(forever))
	r.waiting(t, 1)
	proxy.Cut()
	requireIs(t, receive(t, waiting, "end of the call").err, jetpull.ErrClosed, nats.ErrConnectionClosed)
}

// TestNothingIsLostOverFaults: what was in flight at a fault is delivered again
// when AckWait is over, and nothing else.
func TestNothingIsLostOverFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*tap){
		"cuts":     func(w *tap) { w.proxy.Cut() },
		"restarts": func(w *tap) { w.server.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const callers, total, faults = 8, 4000, 4
			w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
			var seen tally
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var calling sync.WaitGroup
			for i := range callers {
				calling.Go(func() {
					for ctx.Err() == nil {
						res := <-call(ctx, w.sub, (i%3)*10, jetpull.MaxWait(forever))
						for _, m := range res.msgs {
							if seen.add(fmt.Sprint(m.Sequence())) > 1 && m.Delivered() < 2 && name == "cuts" {
								t.Errorf("message %d came again though it was delivered once", m.Sequence())
							}
							// It fails while the buffer for a lost connection is full; the
							// message comes again then.
							_ = m.Ack()
						}
						if res.err != nil && ctx.Err() == nil {
							t.Errorf("with %d messages seen: %v", seen.len(), res.err)
							return
						}
					}
				})
			}
			natstest.Publish(t, w.js, "s.a", total)
			for i := range faults {
				eventually(t, func() error {
					if n := seen.len(); n < i*total/(2*faults) {
						return fmt.Errorf("%d messages", n)
					}
					return nil
				}, "messages flow")
				fault(w)
			}
			consumerHas(t, w.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == total }, "every message is acknowledged")
			stop()
			calling.Wait()
			require.Equal(t, total, seen.len(), "every message was handed over")
			require.Positive(t, w.sub.Stats().Reconnects)
		})
	}
}
