package test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here make a real server send each status of a pull, and look at
// what the caller sees of it. Those of a cluster are in cluster_test.go.

func TestStatus400(t *testing.T) {
	t.Parallel()
	overflow := jetstream.ConsumerConfig{Durable: "C", PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"A"}}
	pinned := jetstream.ConsumerConfig{Durable: "C", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A"}}
	prioritized := jetstream.ConsumerConfig{Durable: "C", PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"A"}}
	other := overflow
	other.PriorityGroups = []string{"B"}

	// Subscribe refuses what the consumer cannot serve, so the server's own
	// refusals are seen where the consumer is made anew behind the client.
	for _, tc := range []struct {
		name          string
		before, after jetstream.ConsumerConfig
		opts          []jetpull.Option
		description   string
	}{
		{"invalid group", overflow, other, []jetpull.Option{jetpull.Group("A")}, "Bad Request - Invalid Priority Group"},
		{"thresholds off policy", overflow, prioritized, []jetpull.Option{jetpull.Group("A"), jetpull.MinPending(5)}, "Bad Request - Not a Overflow Priority consumer"},
		{"min ack pending off policy", overflow, pinned, []jetpull.Option{jetpull.Group("A"), jetpull.MinAckPending(5)}, "Bad Request - Not a Overflow Priority consumer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			sub := r.subscribe(t, tc.before, tc.opts...)
			r.replaceConsumer(t, tc.after)
			_, err := sub.Next(t.Context())
			requireStatus(t, err, 400, tc.description, jetpull.ErrBadRequest, jetstream.ErrBadRequest)
			require.EqualValues(t, 1, sub.Stats().Pulls, "a refused pull is not sent again")
		})
	}
	t.Run("pin id off policy", func(t *testing.T) {
		r := newRig(t)
		sub := r.subscribe(t, pinned, jetpull.Group("A"))
		r.publish(t, 1)
		m, err := sub.Next(t.Context())
		require.NoError(t, err)
		ackAll(t, m)
		_, held := sub.Pin()
		require.True(t, held)
		r.replaceConsumer(t, overflow)
		_, err = sub.Next(t.Context())
		requireStatus(t, err, 400, "Bad Request - Not a Pinned Client Priority consumer", jetpull.ErrBadRequest)
	})
}

// replaceConsumer makes the consumer anew with another configuration.
func (r *rig) replaceConsumer(t *testing.T, cfg jetstream.ConsumerConfig) {
	t.Helper()
	require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
	natstest.Consumer(t, r.js, "S", cfg)
}

func TestStatus404NoMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	start := time.Now()
	for _, n := range []int{0, 10} {
		res := receive(t, call(t.Context(), sub, n, jetpull.NoWait()), "answer")
		require.Empty(t, res.msgs)
		requireIs(t, res.err, jetpull.ErrNoMessages, jetstream.ErrNoMessages)
		require.NotErrorIs(t, res.err, jetpull.ErrTimeout)
	}
	require.Less(t, time.Since(start), time.Second, "NoWait does not wait")
	require.EqualValues(t, 2, sub.Stats().Statuses[404])

	r.publish(t, 3)
	r.pending(t, 3)
	res := receive(t, call(t.Context(), sub, 10, jetpull.NoWait()), "answer")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1", "2", "3")
	require.EqualValues(t, 3, sub.Stats().Statuses[404], "a batch that was partly served ends with a 404 too")
}

func TestStatus408RequestsPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// At MaxAckPending the message stays pending, and a foreign pull has more
	// claims than there are messages.
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute})
	r.publish(t, 2)
	r.pending(t, 2)
	first, err := sub.Next(t.Context())
	require.NoError(t, err)
	foreign := rawPull(t, r.nc, `{"batch":5,"expires":60000000000}`)
	r.waiting(t, 1)

	_, err = sub.Next(t.Context(), jetpull.NoWait())
	requireIs(t, err, jetpull.ErrNoMessages, jetstream.ErrNoMessages)
	require.EqualValues(t, 1, sub.Stats().Statuses[408])

	got := call(t.Context(), sub, 0, jetpull.MaxWait(patience))
	r.waiting(t, 2)
	require.EqualValues(t, 3, sub.Stats().Statuses[408], "the look and the one-shot are refused, and a plain long pull follows")
	require.NoError(t, foreign.Unsubscribe())
	ackAll(t, first)
	res := receive(t, got, "message after the foreign pull went away")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "2")
}

func TestStatus409BatchCompleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 5)
	r.pending(t, 5)
	msgs, err := sub.Fetch(t.Context(), 2, jetpull.MaxBytes(1<<20))
	require.NoError(t, err)
	requireBodies(t, msgs, "1", "2")
	ackAll(t, msgs...)
	// The frame comes after the messages; nothing but its count tells of it.
	msgs, err = sub.Fetch(t.Context(), 5, jetpull.NoWait())
	require.NoError(t, err)
	requireBodies(t, msgs, "3", "4", "5")
	eventually(t, func() error {
		if n := sub.Stats().Statuses[409]; n != 1 {
			return fmt.Errorf("%d statuses 409", n)
		}
		return nil
	}, "Batch Completed is seen")
}

func TestStatus409MaxBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 3)
	for _, n := range []int{0, 10} {
		res := receive(t, call(t.Context(), sub, n, jetpull.MaxBytes(10)), "refusal")
		requireStatus(t, res.err, 409, "Message Size Exceeds MaxBytes", jetpull.ErrMaxBytes, jetstream.ErrMaxBytesExceeded)
		require.Less(t, res.took, 2*time.Second)
	}
	// One message fits: the same status, and no error.
	msgs, err := sub.Fetch(t.Context(), 10, jetpull.MaxBytes(80))
	require.NoError(t, err)
	requireBodies(t, msgs, "1")
	require.EqualValues(t, 3, sub.Stats().Statuses[409])
}

func TestStatus409ConsumerLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxRequestBatch: 10, MaxRequestExpires: 500 * time.Millisecond, MaxRequestMaxBytes: 1000})
	for _, tc := range []struct {
		description string
		n           int
		opts        []jetpull.Option
	}{
		{"Exceeded MaxRequestBatch of 10", 11, nil},
		{"Exceeded MaxRequestExpires of 500ms", 1, []jetpull.Option{jetpull.MaxWait(5 * time.Second)}},
		{"Exceeded MaxRequestMaxBytes of 1000", 1, []jetpull.Option{jetpull.MaxBytes(1001)}},
	} {
		t.Run(strings.ReplaceAll(tc.description, " ", "_"), func(t *testing.T) {
			res := receive(t, call(t.Context(), sub, tc.n, tc.opts...), "refusal")
			requireStatus(t, res.err, 409, tc.description, jetpull.ErrLimitExceeded)
			require.Contains(t, res.err.Error(), "consumer's configuration", "the error says what to do")
			require.Less(t, res.took, time.Second)
		})
	}
	pulls := sub.Stats().Pulls
	require.EqualValues(t, 4, pulls, "one each, and a no-wait pull before the one with expires")

	// A wait that nobody chose is served by pulls within the limit.
	got := call(t.Context(), sub, 10)
	eventually(t, func() error {
		if sub.Stats().Statuses[408] < 2 {
			return fmt.Errorf("statuses %v", sub.Stats().Statuses)
		}
		return nil
	}, "two pulls have expired")
	r.publish(t, 1)
	res := receive(t, got, "message")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
}

func TestStatus409ConsumerDeleted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		remove func(context.Context, jetstream.JetStream) error
	}{
		{"consumer", func(ctx context.Context, js jetstream.JetStream) error { return js.DeleteConsumer(ctx, "S", "C") }},
		{"stream", func(ctx context.Context, js jetstream.JetStream) error { return js.DeleteStream(ctx, "S") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{})
			next, fetch := call(t.Context(), sub, 0, jetpull.MaxWait(patience)), call(t.Context(), sub, 5, jetpull.FillBatch(), jetpull.MaxWait(patience))
			r.waiting(t, 2)
			require.NoError(t, tc.remove(t.Context(), r.js))
			for _, got := range []<-chan result{next, fetch} {
				res := receive(t, got, "end of the call")
				requireStatus(t, res.err, 409, "Consumer Deleted", jetpull.ErrConsumerDeleted, jetstream.ErrConsumerDeleted, nats.ErrConsumerDeleted)
			}
		})
	}
}

func TestStatus409PushConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
	_, err := r.js.CreatePushConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "C", DeliverSubject: "push"})
	require.NoError(t, err)
	_, err = sub.Next(t.Context())
	requireStatus(t, err, 409, "Consumer is push based", jetpull.ErrNotPull, jetstream.ErrNotPullConsumer, nats.ErrPullSubscribeToPushConsumer)
}

func TestStatus409ExceededMaxWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxWaiting: 1})
	foreign := rawPull(t, r.nc, `{"batch":1,"expires":60000000000}`)
	r.waiting(t, 1)

	res := receive(t, call(t.Context(), sub, 0, jetpull.MaxWait(time.Second)), "time-out")
	requireStatus(t, res.err, 409, "Exceeded MaxWaiting", jetpull.ErrMaxWaiting, jetpull.ErrTimeout, nats.ErrTimeout)
	require.Contains(t, res.err.Error(), "raise the consumer's MaxWaiting")
	require.LessOrEqual(t, sub.Stats().Pulls, uint64(8), "it backs off between tries")
	require.GreaterOrEqual(t, sub.Stats().Pulls, uint64(2), "it tries again")

	// As soon as there is room the call gets through. A wait of 10 s and more
	// asks for heartbeats, and the server would say nothing.
	before := sub.Stats().Statuses[409]
	got := call(t.Context(), sub, 0, jetpull.MaxWait(9*time.Second))
	eventually(t, func() error {
		if sub.Stats().Statuses[409] == before {
			return fmt.Errorf("no refusal yet")
		}
		return nil
	}, "refused once")
	require.NoError(t, foreign.Unsubscribe())
	r.publish(t, 1)
	res = receive(t, got, "message")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
}

// With a heartbeat asked for, the server says nothing at all of a full queue.
func TestMaxWaitingFullWithHeartbeatIsSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxWaiting: 1})
	foreign := rawPull(t, r.nc, `{"batch":1,"expires":60000000000}`)
	r.waiting(t, 1)
	got := call(t.Context(), sub, 0, jetpull.MaxWait(patience), jetpull.Heartbeat(50*time.Millisecond))
	eventually(t, func() error {
		if sub.Stats().Silent == 0 {
			return fmt.Errorf("stats %+v", sub.Stats())
		}
		return nil
	}, "a pull with a heartbeat is lost without a word")
	require.NoError(t, foreign.Unsubscribe())
	r.publish(t, 1)
	res := receive(t, got, "message")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
}

func TestStatus409ServerShutdownIsHandled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	next, fetch := call(t.Context(), sub, 0, jetpull.MaxWait(patience)), call(t.Context(), sub, 1, jetpull.FillBatch(), jetpull.MaxWait(patience))
	told, stops := false, 0
	for ; !told; stops++ {
		// A server leaves itself 50 ms to say so before it closes its connections.
		require.Less(t, stops, 5, "in none of 5 shutdowns both pulls are told of it")
		r.server.Start()
		r.waiting(t, 2)
		before := sub.Stats().Statuses[409]
		r.server.Stop()
		eventually(t, func() error {
			n := sub.Stats().Statuses[409] - before
			if told = n >= 2; !told && r.nc.IsConnected() {
				return fmt.Errorf("%d statuses 409", n)
			}
			return nil
		}, "both pulls are told of the shutdown")
	}
	r.server.Start()
	r.publishSoon(t, 2)
	var got []string
	for _, ch := range []<-chan result{next, fetch} {
		res := receive(t, ch, "message after the restart")
		require.NoError(t, res.err)
		got = append(got, bodies(res.msgs)...)
	}
	require.ElementsMatch(t, []string{"1", "2"}, got)
	require.EqualValues(t, stops, sub.Stats().Reconnects)
}

// publishSoon publishes while the connection may still be away.
func (r *rig) publishSoon(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() error {
		_, err := r.js.Stream(t.Context(), "S")
		return err
	}, "the stream is back")
	r.publish(t, n)
}

func TestStatus423MismatchIsHandled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A"}, AckWait: time.Minute}
	sub := r.subscribe(t, cfg, jetpull.Group("A"))
	other := subscribe(t, r.js, "S", "C", jetpull.Group("A"))
	r.publish(t, 1)
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	ackAll(t, m)
	require.NoError(t, sub.Unpin(t.Context()))
	r.publish(t, 1)
	m, err = other.Next(t.Context())
	require.NoError(t, err)
	ackAll(t, m)
	_, held := sub.Pin()
	require.True(t, held, "it has not heard of the unpin yet")

	// The next pull carries the stale id. Without it, it waits as a stand-by.
	res := receive(t, call(t.Context(), sub, 0, jetpull.MaxWait(500*time.Millisecond)), "time-out")
	requireIs(t, res.err, jetpull.ErrTimeout)
	require.NotErrorIs(t, res.err, jetpull.ErrPinMismatch)
	require.EqualValues(t, 1, sub.Stats().Statuses[423])
	_, held = sub.Pin()
	require.False(t, held)
}

func TestStatus423WrongPinIDIsHandled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A"}, AckWait: time.Minute}
	sub := r.subscribe(t, cfg, jetpull.Group("A"))
	other := subscribe(t, r.js, "S", "C", jetpull.Group("A"))
	r.publish(t, 1)
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	ackAll(t, m)

	// Its pull waits with the id; the unpin and the other client's pin come
	// while it waits.
	queued := call(t.Context(), sub, 0, jetpull.MaxWait(patience))
	r.waiting(t, 1)
	require.NoError(t, sub.Unpin(t.Context()))
	taking := call(t.Context(), other, 0, jetpull.MaxWait(patience))
	r.waiting(t, 2)
	r.publish(t, 1)
	// Whoever pulls without an id first is pinned; the message reaches one.
	select {
	case res := <-taking:
		require.NoError(t, res.err)
		requireBodies(t, res.msgs, "1")
	case res := <-queued:
		require.NoError(t, res.err)
		requireBodies(t, res.msgs, "1")
	case <-time.After(patience):
		t.Fatal("nobody got the message after the unpin")
	}
	eventually(t, func() error {
		if n := sub.Stats().Statuses[423]; n != 1 {
			return fmt.Errorf("%d statuses 423", n)
		}
		return nil
	}, "the word on the stale id")
}

// A 503 for a consumer that is gone is told as what it means.
func TestStatus503ConsumerGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
	res := receive(t, call(t.Context(), sub, 0, jetpull.MaxWait(patience)), "end of the call")
	requireIs(t, res.err, jetpull.ErrConsumerDeleted, jetstream.ErrConsumerDeleted, jetstream.ErrConsumerNotFound)
	require.Less(t, res.took, 2*time.Second, "it does not wait for the deadline")
	require.NotZero(t, sub.Stats().Statuses[503])
}

// A 503 without more is retried, and the deadline's error names it.
func TestStatus503IsRetriedWithinTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	require.NoError(t, r.server.Unwrap().DisableJetStream())
	res := receive(t, call(t.Context(), sub, 0, jetpull.MaxWait(time.Second)), "time-out")
	requireStatus(t, res.err, 503, "", jetpull.ErrTimeout, jetpull.ErrNoResponders, nats.ErrNoResponders)
	require.GreaterOrEqual(t, sub.Stats().Statuses[503], uint64(2))

	before := sub.Stats().Statuses[503]
	got := call(t.Context(), sub, 5, jetpull.MaxWait(patience))
	eventually(t, func() error {
		if sub.Stats().Statuses[503] == before {
			return fmt.Errorf("no 503 yet")
		}
		return nil
	}, "another 503")
	r.server.Restart()
	r.publishSoon(t, 1)
	res = receive(t, got, "message after JetStream came back")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
}
