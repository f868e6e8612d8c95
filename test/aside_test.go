package test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// TestADeadLetterThatIsRefusedAtTheLastDelivery: the others are handled, the
// message stays pending beyond its AckWait, and is terminated when its dead letter
// can be stored.
func TestADeadLetterThatIsRefusedAtTheLastDelivery(t *testing.T) {
	t.Parallel()
	dead := jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}}
	for name, tc := range map[string]struct {
		refuse func(*testing.T, jetstream.JetStream)
		says   error
	}{
		"too large for its stream": {func(t *testing.T, js jetstream.JetStream) {
			small := dead
			small.MaxMsgSize = 10
			_, err := js.UpdateStream(t.Context(), small)
			require.NoError(t, err)
		}, nil},
		"its stream is gone": {func(t *testing.T, js jetstream.JetStream) {
			require.NoError(t, js.DeleteStream(t.Context(), "DEAD"))
		}, jetstream.ErrNoStreamResponse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			natstest.StreamWith(t, r.js, dead)
			sub := r.subscribe(t, jetstream.ConsumerConfig{MaxDeliver: 1, AckWait: time.Second})
			var handled, refused atomic.Int64
			run := consume(t, sub, func(_ context.Context, _ *jetpull.Msg) error {
				if handled.Add(1) == 1 {
					tc.refuse(t, r.js)
					return errors.New("no use")
				}
				return nil
			}, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"), jetpull.OnError(func(err error) {
				var api *jetstream.APIError
				if tc.says != nil && errors.Is(err, tc.says) || tc.says == nil && errors.As(err, &api) {
					refused.Add(1)
				}
			}))
			r.publish(t, 50)
			eventually(t, func() error {
				if n := handled.Load(); n < 50 {
					return fmt.Errorf("%d of 50", n)
				}
				return nil
			}, "the others are handled")
			r.ackPending(t, 1)
			// The third try comes three seconds after the first.
			eventually(t, func() error {
				if n := refused.Load(); n < 3 {
					return fmt.Errorf("%d tries", n)
				}
				return nil
			}, "three tries")
			r.ackPending(t, 1)
			stream, err := r.js.CreateOrUpdateStream(t.Context(), dead)
			require.NoError(t, err)
			r.ackPending(t, 0)
			info, err := stream.Info(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, info.State.Msgs)
			run.end(t)
			require.EqualValues(t, 1, sub.Stats().Terms)
		})
	}
}

// TestADeadLetterOverMaxPayload can never be stored. It holds nothing up, and the
// drain says so.
func TestADeadLetterOverMaxPayload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	natstest.Stream(t, r.js, "DEAD", "dead.>")
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxDeliver: 1, AckWait: time.Minute})
	_, err := r.js.Publish(t.Context(), "s.a", make([]byte, r.nc.MaxPayload()-10))
	require.NoError(t, err)
	r.publish(t, 10)
	var handled atomic.Int64
	run := consume(t, sub, func(_ context.Context, _ *jetpull.Msg) error {
		if handled.Add(1) == 1 {
			return errors.New("no use")
		}
		return nil
	}, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"), jetpull.DrainTimeout(100*time.Millisecond))
	eventually(t, func() error {
		if n := handled.Load(); n < 11 {
			return fmt.Errorf("%d of 11", n)
		}
		return nil
	}, "the others are handled")
	r.ackPending(t, 1)
	run.stop()
	require.ErrorIs(t, receive(t, run.done, "end of Consume"), jetpull.ErrDrainTimeout)
	require.EqualValues(t, 1, sub.Stats().Naks)
}
