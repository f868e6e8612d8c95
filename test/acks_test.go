package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

func TestAckNext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	r.publish(t, 3)
	r.pending(t, 3)
	m := next(t, sub)
	for want := 2; want <= 3; want++ {
		before := m
		var err error
		m, err = m.AckNext(t.Context())
		require.NoError(t, err)
		requireBodies(t, []*jetpull.Msg{m}, fmt.Sprint(want))
		require.ErrorIs(t, before.Ack(), jetstream.ErrMsgAlreadyAckd)
		_, err = before.AckNext(t.Context())
		requireIs(t, err, jetstream.ErrMsgAlreadyAckd)
	}
	require.EqualValues(t, 3, sub.Stats().Pulls, "one pull per message")

	// Nothing there: the message is acknowledged all the same, and a long pull
	// waits for the next.
	got := make(chan *jetpull.Msg, 1)
	go func() {
		next, err := m.AckNext(t.Context(), jetpull.MaxWait(forever))
		if err != nil {
			t.Errorf("AckNext: %v", err)
		}
		got <- next
	}()
	r.waiting(t, 1)
	r.ackPending(t, 0)
	r.publish(t, 1)
	m = receive(t, got, "the next message")
	require.NotNil(t, m)
	_, err := m.AckNext(t.Context(), jetpull.NoWait())
	requireIs(t, err, jetpull.ErrNoMessages)
	r.ackPending(t, 0)

	// A context that has ended ends the pull, not the acknowledgement.
	r.publish(t, 2)
	msgs := fetch(t, sub, 2, jetpull.FillBatch())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = msgs[0].AckNext(ctx)
	requireIs(t, err, context.Canceled)
	require.ErrorIs(t, msgs[0].Ack(), jetstream.ErrMsgAlreadyAckd)
	_, err = msgs[1].AckNext(ctx, jetpull.FillBatch())
	requireIs(t, err, jetpull.ErrInvalidOption)
	require.NoError(t, msgs[1].Ack(), "a refused call acknowledges nothing")
	r.ackPending(t, 0)
}

func TestConfirmAcks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1})
	b := subscribe(t, r.js, "S", "C")
	const n = 3000
	r.publish(t, n)
	var msgs []*jetpull.Msg
	for i := 0; len(msgs) < n; i++ {
		msgs = append(msgs, fetch(t, []*jetpull.Subscription{a, b}[i%2], 700)...)
	}
	require.NoError(t, jetpull.ConfirmAcks(t.Context()), "nothing to confirm is confirmed")
	require.NoError(t, jetpull.ConfirmAcks(t.Context(), msgs...))
	info, err := a.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.NumAckPending, "confirmed means that the server has all of them now")
	require.EqualValues(t, n, info.AckFloor.Stream)
	require.EqualValues(t, n, a.Stats().Acks+b.Stats().Acks)

	// One error for each that fails, with its sequence.
	natstest.Publish(t, r.js, "s.b", 3)
	msgs = fetch(t, a, 3, jetpull.FillBatch())
	ackAll(t, msgs[1])
	err = jetpull.ConfirmAcks(t.Context(), msgs...)
	requireIs(t, err, jetstream.ErrMsgAlreadyAckd)
	require.ErrorContains(t, err, fmt.Sprint(n+2))
	require.NotContains(t, err.Error(), fmt.Sprint(n+1))
	r.ackPending(t, 0)

	// Of a consumer that is gone, which is not told from one without a leader: at the deadline.
	natstest.Publish(t, r.js, "s.c", 2)
	msgs = fetch(t, a, 2, jetpull.FillBatch())
	require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
	failed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	go func() { failed <- jetpull.ConfirmAcks(ctx, msgs...) }()
	err = receive(t, failed, "the end of ConfirmAcks")
	requireIs(t, err, jetpull.ErrNoResponders)
	for _, m := range msgs {
		require.ErrorContains(t, err, fmt.Sprintf("stream sequence %d:", m.Sequence()))
	}
	requireIs(t, msgs[0].DoubleAck(t.Context()), jetpull.ErrNoResponders)
}
