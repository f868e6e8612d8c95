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
)

func TestAckNext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	r.publish(t, 3)
	r.pending(t, 3)
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	for want := 2; want <= 3; want++ {
		before := m
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
		next, err := m.AckNext(t.Context(), jetpull.MaxWait(patience))
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
	_, err = m.AckNext(t.Context(), jetpull.NoWait())
	requireIs(t, err, jetpull.ErrNoMessages)
	r.ackPending(t, 0)
}

func TestAckNextAcknowledgesThoughItsContextHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	r.publish(t, 2)
	msgs, err := sub.Fetch(t.Context(), 2)
	require.NoError(t, err)
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
	t.Parallel()
	r := newRig(t)
	const ackWait = 2 * time.Second
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: ackWait})
	next := func(delivered uint64) *jetpull.Msg {
		t.Helper()
		m, err := sub.Next(t.Context(), jetpull.MaxWait(patience))
		require.NoError(t, err)
		require.Equal(t, delivered, m.Delivered())
		return m
	}
	r.publish(t, 1)

	require.NoError(t, next(1).Nak())
	start := time.Now()
	m := next(2)
	require.Less(t, time.Since(start), ackWait/2, "a NAKed message comes again at once")

	start = time.Now()
	require.NoError(t, m.NakWithDelay(400*time.Millisecond))
	m = next(3)
	require.GreaterOrEqual(t, time.Since(start), 350*time.Millisecond)

	// In progress three times over the AckWait, and it does not come again.
	for range 6 {
		_, err := sub.Next(t.Context(), jetpull.MaxWait(ackWait/2))
		requireIs(t, err, jetpull.ErrTimeout)
		require.NoError(t, m.InProgress())
	}
	require.NoError(t, m.DoubleAck(t.Context()))
	require.ErrorIs(t, m.InProgress(), jetstream.ErrMsgAlreadyAckd)
	for _, again := range []func() error{
		m.Ack, m.Nak, m.Term,
		func() error { return m.NakWithDelay(time.Second) },
		func() error { return m.TermWithReason("twice") },
		func() error { return m.DoubleAck(t.Context()) },
		func() error { return jetpull.ConfirmAcks(t.Context(), m) },
	} {
		require.ErrorIs(t, again(), jetstream.ErrMsgAlreadyAckd)
	}
	r.ackPending(t, 0)

	natstest.Publish(t, r.js, "s.b", 2)
	require.NoError(t, next(1).Term())
	require.NoError(t, next(1).TermWithReason("poison"))
	r.ackPending(t, 0)
	_, err := sub.Next(t.Context(), jetpull.MaxWait(2*ackWait))
	requireIs(t, err, jetpull.ErrTimeout)

	// And one that nobody acknowledges.
	natstest.Publish(t, r.js, "s.c", 1)
	next(1)
	m = next(2)
	ackAll(t, m)
	stats := sub.Stats()
	require.EqualValues(t, 2, stats.Naks)
	require.EqualValues(t, 2, stats.Terms)
	require.EqualValues(t, 6, stats.InProgress)
	require.EqualValues(t, 2, stats.Acks)
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
		got, err := []*jetpull.Subscription{a, b}[i%2].Fetch(t.Context(), 700)
		require.NoError(t, err)
		msgs = append(msgs, got...)
	}
	require.NoError(t, jetpull.ConfirmAcks(t.Context()), "nothing to confirm is confirmed")
	require.NoError(t, jetpull.ConfirmAcks(t.Context(), msgs...))
	c, err := lookUp(t, r.js, "S", "C")
	require.NoError(t, err)
	require.Zero(t, c.CachedInfo().NumAckPending, "confirmed means that the server has all of them now")
	require.EqualValues(t, n, c.CachedInfo().AckFloor.Stream)
	require.EqualValues(t, n, a.Stats().Acks+b.Stats().Acks)

	// One error for each that fails, with its sequence.
	natstest.Publish(t, r.js, "s.b", 3)
	msgs, err = a.Fetch(t.Context(), 3)
	require.NoError(t, err)
	ackAll(t, msgs[1])
	err = jetpull.ConfirmAcks(t.Context(), msgs...)
	requireIs(t, err, jetstream.ErrMsgAlreadyAckd)
	require.ErrorContains(t, err, fmt.Sprint(n+2))
	require.NotContains(t, err.Error(), fmt.Sprint(n+1))
	r.ackPending(t, 0)
}

func TestConfirmAcksOfAConsumerThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	r.publish(t, 2)
	msgs, err := sub.Fetch(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = jetpull.ConfirmAcks(ctx, msgs...)
	requireIs(t, err, jetpull.ErrNoResponders)
	require.ErrorContains(t, err, "stream sequence 1:")
	require.ErrorContains(t, err, "stream sequence 2:")
	require.Less(t, time.Since(start), patience/2, "it does not wait for the deadline")
	requireIs(t, msgs[0].DoubleAck(t.Context()), jetpull.ErrNoResponders)
	require.Zero(t, sub.Stats().Acks)
}

func TestConfirmAcksWithAnEndedContext(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	w.publish(t, 2)
	msgs, err := w.sub.Fetch(t.Context(), 2)
	require.NoError(t, err)
	w.proxy.Hold(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = jetpull.ConfirmAcks(ctx, msgs...)
	requireIs(t, err, context.DeadlineExceeded, jetpull.ErrTimeout)
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 2, "one error for each message")
	w.proxy.Hold(false)
	ackAll(t, msgs...)
	w.ackPending(t, 0)
}
