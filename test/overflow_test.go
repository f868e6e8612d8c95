package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here are of the policies overflow and prioritized, which order
// waiting pulls and remember nobody.

func TestOverflowMinPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, priorityConsumer(jetstream.PriorityPolicyOverflow, "A"), jetpull.Group("A"))
	got := call(t.Context(), sub, 100, jetpull.MinPending(10), jetpull.MaxWait(patience))
	r.waiting(t, 1)
	r.publish(t, 9)
	_, err := sub.Fetch(t.Context(), 100, jetpull.MinPending(10), jetpull.MaxWait(300*time.Millisecond))
	requireIs(t, err, jetpull.ErrTimeout)
	require.Empty(t, got, "nine are under the threshold of ten")
	natstest.Publish(t, r.js, "s.b", 1)
	res := receive(t, got, "the overflow")
	require.NoError(t, res.err)
	require.NotEmpty(t, res.msgs)
	ackAll(t, res.msgs...)

	// Without a threshold the rest comes at once.
	for left := 10 - len(res.msgs); left > 0; {
		msgs, err := sub.Fetch(t.Context(), 100)
		require.NoError(t, err)
		ackAll(t, msgs...)
		left -= len(msgs)
	}
	r.ackPending(t, 0)
}

func TestOverflowMinAckPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	main := r.subscribe(t, priorityConsumer(jetstream.PriorityPolicyOverflow, "A"), jetpull.Group("A"))
	spare := subscribe(t, r.js, "S", "C", jetpull.Group("A"), jetpull.MinAckPending(3))
	r.publish(t, 10)
	held, err := main.Fetch(t.Context(), 2)
	require.NoError(t, err)
	_, err = spare.Next(t.Context(), jetpull.MaxWait(300*time.Millisecond))
	requireIs(t, err, jetpull.ErrTimeout)
	got := call(t.Context(), spare, 0, jetpull.MaxWait(patience))
	r.waiting(t, 1)
	more, err := main.Next(t.Context())
	require.NoError(t, err)
	requireBodies(t, append(held, more), "1", "2", "3")
	res := receive(t, got, "a message at three ack pending")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "4")

	// Either threshold is enough.
	m, err := spare.Next(t.Context(), jetpull.MinPending(1000))
	require.NoError(t, err)
	requireBodies(t, []*jetpull.Msg{m}, "5")
}

func TestPrioritizedOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consumer(t, priorityConsumer(jetstream.PriorityPolicyPrioritized, "A"))
	// The worst comes first to the queue and is served last.
	var got []<-chan result
	for i, priority := range []int{9, 5, 1, 0} {
		sub := subscribe(t, r.js, "S", "C", jetpull.Group("A"), jetpull.Priority(priority))
		got = append(got, call(t.Context(), sub, 0, jetpull.MaxWait(patience)))
		r.waiting(t, i+1)
	}
	for served := range 4 {
		natstest.Publish(t, r.js, fmt.Sprintf("s.%d", served), 1)
		res := receive(t, got[3-served], "the message for the best priority that waits")
		require.NoError(t, res.err)
		require.Equal(t, fmt.Sprintf("s.%d", served), res.msgs[0].Subject())
		for _, worse := range got[:3-served] {
			require.Empty(t, worse)
		}
	}
}

// One subscription may use several priorities; each goes its own way.
func TestPrioritizedByCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, priorityConsumer(jetstream.PriorityPolicyPrioritized, "A"), jetpull.Group("A"))
	low := call(t.Context(), sub, 0, jetpull.Priority(7), jetpull.MaxWait(patience))
	r.waiting(t, 1)
	high := call(t.Context(), sub, 0, jetpull.Priority(0), jetpull.MaxWait(patience))
	r.waiting(t, 2)
	r.publish(t, 1)
	res := receive(t, high, "the message for priority 0")
	require.NoError(t, res.err)
	require.Empty(t, low)
	natstest.Publish(t, r.js, "s.b", 1)
	res = receive(t, low, "the message for priority 7")
	require.NoError(t, res.err)
}
