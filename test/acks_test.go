package test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
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

func TestAckVerbs(t *testing.T) {
	const ackWait = 2 * time.Second
	virtually(t, jetstream.ConsumerConfig{AckWait: ackWait}, func(t *testing.T, w *world) {
		start := w.now()
		since := func() time.Duration { defer func() { start = w.now() }(); return w.now() - start }
		redelivered := func(delivered uint64, after time.Duration) *jetpull.Msg {
			t.Helper()
			m := next(t, w.sub, jetpull.MaxWait(forever))
			require.Equal(t, delivered, m.Delivered())
			require.InDelta(t, after, since(), float64(slack))
			return m
		}
		w.publish("s.a", 1)
		require.NoError(t, redelivered(1, 0).Nak())
		require.NoError(t, redelivered(2, 0).NakWithDelay(400*time.Millisecond))
		m := redelivered(3, 400*time.Millisecond)
		for range 6 { // in progress for three times AckWait
			_, err := w.sub.Next(t.Context(), jetpull.MaxWait(ackWait/2))
			requireIs(t, err, jetpull.ErrTimeout)
			require.NoError(t, m.InProgress())
		}
		require.NoError(t, m.DoubleAck(t.Context()))
		require.Len(t, w.events(1, model.Delivered), 3)
		for _, again := range []func() error{
			m.Ack, m.Nak, m.Term, m.InProgress,
			func() error { return m.NakWithDelay(time.Second) },
			func() error { return m.TermWithReason("twice") },
			func() error { return m.DoubleAck(t.Context()) },
			func() error { return jetpull.ConfirmAcks(t.Context(), m) },
		} {
			require.ErrorIs(t, again(), jetstream.ErrMsgAlreadyAckd)
		}

		w.publish("s.b", 3)
		require.NoError(t, next(t, w.sub).Term())
		require.NoError(t, next(t, w.sub).TermWithReason("poison"))
		since()
		redelivered(1, 0)
		ackAll(t, redelivered(2, ackWait))
		w.settled()
		s := w.sub.Stats()
		require.Equal(t, []uint64{2, 2, 6, 2}, []uint64{s.Naks, s.Terms, s.InProgress, s.Acks}, "NAKs, TERMs, in progress, acks")
	})
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

	// Of a consumer that is gone: at once, not at the deadline.
	natstest.Publish(t, r.js, "s.c", 2)
	msgs = fetch(t, a, 2, jetpull.FillBatch())
	require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
	failed := make(chan error, 1)
	go func() { failed <- jetpull.ConfirmAcks(t.Context(), msgs...) }()
	err = receive(t, failed, "the end of ConfirmAcks")
	requireIs(t, err, jetpull.ErrNoResponders)
	for _, m := range msgs {
		require.ErrorContains(t, err, fmt.Sprintf("stream sequence %d:", m.Sequence()))
	}
	requireIs(t, msgs[0].DoubleAck(t.Context()), jetpull.ErrNoResponders)
}

func TestConfirmAcksWithoutAnAnswer(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{AckWait: time.Minute}, func(t *testing.T, w *world) {
		w.publish("s.a", 50)
		msgs := fetch(t, w.sub, 50)
		w.model.Peer().Pause(true)
		before := w.now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := jetpull.ConfirmAcks(ctx, msgs...)
		require.Equal(t, 3*time.Second, w.now()-before)
		requireIs(t, err, context.DeadlineExceeded, jetpull.ErrTimeout)
		joined, ok := errors.AsType[interface {
			error
			Unwrap() []error
		}](err)
		require.True(t, ok)
		require.Len(t, joined.Unwrap(), len(msgs), "one error for each message")

		confirmed := make(chan error, 1)
		go func() { confirmed <- jetpull.ConfirmAcks(t.Context(), msgs...) }()
		pass(time.Second)
		require.Empty(t, confirmed, "nothing is confirmed while the server is silent")
		w.model.Peer().Cut()
		w.model.Peer().Pause(false)
		require.NoError(t, receive(t, confirmed, "confirmation after the cut"))
		w.settled()
		require.ErrorIs(t, jetpull.ConfirmAcks(t.Context(), msgs[0]), jetstream.ErrMsgAlreadyAckd)
	})
}
