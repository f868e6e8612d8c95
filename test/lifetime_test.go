package test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here follow one subscription through what happens to it and to
// its consumer.

func TestSubscriptionOutlivesTheContextOfSubscribe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	sub, err := jetpull.Subscribe(ctx, r.js, "S", "C")
	require.NoError(t, err)
	cancel()
	got := call(t.Context(), sub, 1, jetpull.MaxWait(patience))
	r.waiting(t, 1)
	r.publish(t, 1)
	require.NoError(t, receive(t, got, "message").err)
	require.NoError(t, sub.Close(t.Context()))

	_, err = jetpull.Subscribe(ctx, r.js, "S", "C")
	requireIs(t, err, context.Canceled)
}

func TestSubscriptionServesAConsumerThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	for range 2 {
		got := call(t.Context(), sub, 1, jetpull.MaxWait(patience))
		r.waiting(t, 1)
		require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
		requireIs(t, receive(t, got, "end of the call").err, jetpull.ErrConsumerDeleted)
		r.consumer(t, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
		got = call(t.Context(), sub, 1, jetpull.MaxWait(patience))
		r.waiting(t, 1)
		r.publish(t, 1)
		res := receive(t, got, "message of the new consumer")
		require.NoError(t, res.err)
		ackAll(t, res.msgs...)
	}
}

func TestConnectionOptions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{})
	for name, opt := range map[string]nats.Option{
		"inbox prefix":      nats.CustomInboxPrefix("my.own"),
		"no echo":           nats.NoEcho(),
		"old request style": nats.UseOldRequestStyle(),
		"small buffers":     nats.SyncQueueLen(1),
	} {
		t.Run(name, func(t *testing.T) {
			nc := r.server.Connect(t, opt)
			sub := subscribe(t, natstest.JetStream(t, nc), "S", "C")
			r.publish(t, 20)
			msgs, err := sub.Fetch(t.Context(), 19)
			require.NoError(t, err)
			require.Len(t, msgs, 19)
			m, err := msgs[18].AckNext(t.Context())
			require.NoError(t, err)
			ackAll(t, append(msgs[:18], m)...)
			waiting := call(t.Context(), sub, 1, jetpull.MaxWait(patience))
			r.waiting(t, 1)
			r.publish(t, 1)
			res := receive(t, waiting, "message")
			require.NoError(t, res.err)
			ackAll(t, res.msgs...)
			require.NoError(t, nc.LastError())
		})
	}
}

func TestCancelledCallsLeaveNoInboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{})
	nc := r.server.Connect(t)
	sub := subscribe(t, natstest.JetStream(t, nc), "S", "C")
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		pulls := sub.Stats().Pulls
		got := call(ctx, sub, 1+i%3, [][]jetpull.Option{nil, {jetpull.FillBatch()}, {jetpull.MaxBytes(100)}}[i%3]...)
		if i%2 == 0 {
			eventually(t, func() error {
				if sub.Stats().Pulls == pulls {
					return fmt.Errorf("%d pulls", pulls)
				}
				return nil
			}, "a pull is sent")
		}
		cancel()
		requireIs(t, receive(t, got, "end of the call").err, context.Canceled)
	}
	eventually(t, func() error {
		if n := libSubscriptions(nc); n > 4 {
			return fmt.Errorf("%d inboxes", n)
		}
		if n := sub.Stats().Outstanding; n != 0 {
			return fmt.Errorf("%d messages outstanding", n)
		}
		return nil
	}, "300 cancelled calls leave a pool of inboxes")
	r.waiting(t, 0)
}

func TestMessagesKeepTheirContent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxAckPending: -1})
	sizes := []int{0, 1, 100, 4 << 10, 4<<10 + 1, 70 << 10, 900 << 10}
	const rounds = 6
	body := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, sizes[i%len(sizes)]) }
	for i := range rounds * len(sizes) {
		_, err := r.js.PublishMsg(t.Context(), &nats.Msg{
			Subject: fmt.Sprintf("s.%d", i), Data: body(i), Header: nats.Header{"No": {fmt.Sprint(i)}, "no": {"lower"}},
		})
		require.NoError(t, err)
	}
	var all []*jetpull.Msg
	for len(all) < rounds*len(sizes) {
		msgs, err := sub.Fetch(t.Context(), 11)
		require.NoError(t, err)
		all = append(all, msgs...)
	}
	for i, m := range all {
		require.Equal(t, fmt.Sprintf("s.%d", i), m.Subject())
		require.Equal(t, nats.Header{"No": {fmt.Sprint(i)}, "no": {"lower"}}, m.Headers())
		require.True(t, bytes.Equal(body(i), m.Data()), "message %d of %d bytes", i, len(m.Data()))
	}
	ackAll(t, all...)
}

// Two subscriptions on one connection and one consumer share nothing.
func TestSubscriptionsAreApart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	b := subscribe(t, r.js, "S", "C")
	waiting := call(t.Context(), b, 0, jetpull.MaxWait(patience))
	r.waiting(t, 1)
	require.NoError(t, a.Close(t.Context()))
	require.Empty(t, waiting)
	r.publish(t, 1)
	res := receive(t, waiting, "message for the one that is open")
	require.NoError(t, res.err)
	require.Zero(t, a.Stats().Messages)
	require.EqualValues(t, 1, b.Stats().Messages)
}
