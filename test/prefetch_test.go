package test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// TestPrefetchBytesHolds: what a Consume holds is never over the limit. With three
// replicas the frame that ends a pull, and says how many bytes it brought, overtakes
// the messages, and a new leader knows nothing of the pulls of the old one.
func TestPrefetchBytesHolds(t *testing.T) {
	const messages, size, limit = 3000, 1000, 20_000
	step := model.Delay{Min: roundTrip, Max: 3 * roundTrip}
	for name, servers := range map[string]model.Config{"one server": {}, "three": {Replicas: 3, Quorum: step, Outage: step}} {
		t.Run(name, func(t *testing.T) {
			virtuallyOn(t, servers, jetstream.ConsumerConfig{AckWait: 2 * time.Second, MaxAckPending: -1}, func(t *testing.T, w *world) {
				var most, calls atomic.Int64
				run := consume(t, w.sub, func(context.Context, *jetpull.Msg) error {
					s := w.sub.Stats()
					most.Store(max(most.Load(), int64(s.Buffered+s.Running)*size))
					calls.Add(1)
					pass(500 * time.Microsecond)
					return nil
				}, jetpull.Concurrency(4), byKey, jetpull.PrefetchBytes(limit))
				for i := range messages {
					w.model.Publish(fmt.Sprintf("s.k%d", i%feedKeys), nil, bytes.Repeat([]byte("x"), size))
				}
				for step := 1; servers.Replicas > 0 && step <= 6; step++ {
					w.until(func() bool { return calls.Load() > int64(step)*messages/8 }, "messages are handled")
					w.consumer.StepDown()
				}
				w.settled()
				run.end(t)
				require.LessOrEqual(t, most.Load(), int64(limit), "the most that was held at a time")
				require.Greater(t, most.Load(), int64(limit/2), "the limit was put to use")
			})
		})
	}
}
