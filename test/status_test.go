package test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// The tests here make a real server send each status of a pull, and look at what the
// caller sees of it. Those of a cluster are in cluster_test.go.

func TestStatusThatEndsACall(t *testing.T) {
	t.Parallel()
	group := []jetpull.Option{jetpull.Group("A")}
	overflow := priorityConsumer(jetstream.PriorityPolicyOverflow, "A")
	// Subscribe refuses what the consumer cannot serve, so the server's own refusals
	// are seen where the consumer is replaced behind the client.
	replaced := func(cfg jetstream.ConsumerConfig) func(*testing.T, *rig, *jetpull.Subscription) {
		return func(t *testing.T, r *rig, _ *jetpull.Subscription) {
			require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
			r.consumer(t, cfg)
		}
	}
	pinned := func(t *testing.T, r *rig, sub *jetpull.Subscription) {
		r.publish(t, 1)
		ackAll(t, next(t, sub))
		replaced(overflow)(t, r, sub)
	}
	limits := jetstream.ConsumerConfig{MaxRequestBatch: 10, MaxRequestExpires: 500 * time.Millisecond, MaxRequestMaxBytes: 1000}
	full := func(t *testing.T, r *rig, _ *jetpull.Subscription) {
		rawPull(t, r.nc, `{"batch":1,"expires":60000000000}`)
		r.waiting(t, 1)
	}
	push := func(t *testing.T, r *rig, _ *jetpull.Subscription) {
		require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
		_, err := r.js.CreatePushConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "C", DeliverSubject: "push"})
		require.NoError(t, err)
	}
	large := func(t *testing.T, r *rig, _ *jetpull.Subscription) { r.publish(t, 1); r.pending(t, 1) }
	bad := []error{jetpull.ErrBadRequest, jetstream.ErrBadRequest}
	limit := []error{jetpull.ErrLimitExceeded}
	for _, tc := range []struct {
		name        string
		cfg         jetstream.ConsumerConfig
		defaults    []jetpull.Option
		before      func(*testing.T, *rig, *jetpull.Subscription)
		n           int
		opts        []jetpull.Option
		code        int
		description string
		is          []error
		says        string
	}{
		{"invalid group", overflow, group, replaced(priorityConsumer(jetstream.PriorityPolicyOverflow, "B")), 0, nil, 400, "Bad Request - Invalid Priority Group", bad, ""},
		{"min pending off policy", overflow, append(group, jetpull.MinPending(5)), replaced(priorityConsumer(jetstream.PriorityPolicyPrioritized, "A")), 0, nil, 400, "Bad Request - Not a Overflow Priority consumer", bad, ""},
		{"min ack pending off policy", overflow, append(group, jetpull.MinAckPending(5)), replaced(pinnedConsumer()), 0, nil, 400, "Bad Request - Not a Overflow Priority consumer", bad, ""},
		{"pin id off policy", pinnedConsumer(), group, pinned, 0, nil, 400, "Bad Request - Not a Pinned Client Priority consumer", bad, ""},
		{"max bytes, Next", jetstream.ConsumerConfig{}, nil, large, 0, []jetpull.Option{jetpull.MaxBytes(10)}, 409, "Message Size Exceeds MaxBytes", []error{jetpull.ErrMaxBytes, jetstream.ErrMaxBytesExceeded}, ""},
		{"max bytes, Fetch", jetstream.ConsumerConfig{}, nil, large, 9, []jetpull.Option{jetpull.MaxBytes(10)}, 409, "Message Size Exceeds MaxBytes", []error{jetpull.ErrMaxBytes}, ""},
		{"limit of batch", limits, nil, nil, 11, nil, 409, "Exceeded MaxRequestBatch of 10", limit, "consumer's configuration"},
		{"limit of expires", limits, nil, nil, 1, []jetpull.Option{jetpull.MaxWait(forever)}, 409, "Exceeded MaxRequestExpires of 500ms", limit, "consumer's configuration"},
		{"limit of bytes", limits, nil, nil, 1, []jetpull.Option{jetpull.MaxBytes(1001)}, 409, "Exceeded MaxRequestMaxBytes of 1000", limit, "consumer's configuration"},
		{"push consumer", jetstream.ConsumerConfig{}, nil, push, 0, nil, 409, "Consumer is push based", []error{jetpull.ErrNotPull, jetstream.ErrNotPullConsumer, nats.ErrPullSubscribeToPushConsumer}, ""},
		{"max waiting", jetstream.ConsumerConfig{MaxWaiting: 1}, nil, full, 0, []jetpull.Option{jetpull.MaxWait(3 * time.Second)}, 409, "Exceeded MaxWaiting", []error{jetpull.ErrMaxWaiting, jetpull.ErrTimeout, nats.ErrTimeout}, "raise the consumer's MaxWaiting"},
		{"no JetStream", jetstream.ConsumerConfig{}, nil, func(t *testing.T, r *rig, _ *jetpull.Subscription) {
			require.NoError(t, r.server.Unwrap().DisableJetStream())
		}, 0, []jetpull.Option{jetpull.MaxWait(time.Second)}, 503, "", []error{jetpull.ErrTimeout, jetpull.ErrNoResponders, nats.ErrNoResponders}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sub := r.subscribe(t, tc.cfg, tc.defaults...)
			if tc.before != nil {
				tc.before(t, r, sub)
			}
			err := receive(t, call(t.Context(), sub, tc.n, tc.opts...), "the refusal").err
			requireStatus(t, err, tc.code, tc.description, tc.is...)
			require.ErrorContains(t, err, tc.says)
			require.LessOrEqual(t, sub.Stats().Statuses[tc.code], uint64(8), "no hot loop")
		})
	}
}

// If pulls of other clients wait for all that is pending, the server refuses a no-wait
// pull with 408 Requests Pending, the one-shot too. A plain long pull follows, and later
// ones are one-shots again: this is no old server.
func TestStatus408RequestsPending(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute})
	w.publish(t, 2)
	w.pending(t, 2)
	first := next(t, w.sub)
	foreign := rawPull(t, w.nc, `{"batch":5,"expires":60000000000}`)
	w.waiting(t, 1)
	_, err := w.sub.Next(t.Context(), jetpull.NoWait())
	requireIs(t, err, jetpull.ErrNoMessages, jetstream.ErrNoMessages)
	require.EqualValues(t, 1, w.sub.Stats().Statuses[408])

	got := call(t.Context(), w.sub, 10, jetpull.MaxWait(forever))
	w.waiting(t, 2)
	sent := w.pulls(t)
	last := sent[len(sent)-1]
	require.Equal(t, 1, last.Batch, "a plain pull for the first message")
	require.False(t, last.NoWait)
	require.NoError(t, foreign.Unsubscribe())
	require.NoError(t, w.nc.FlushTimeout(patience))
	ackAll(t, first)
	msgs := served(t, got, "message after the foreign pull went away")
	requireBodies(t, msgs, "2")
	ackAll(t, msgs...)

	before := len(w.pulls(t))
	_, err = w.sub.Fetch(t.Context(), 10, jetpull.MaxWait(time.Second))
	requireIs(t, err, jetpull.ErrTimeout)
	sent = w.pulls(t)[before:]
	require.GreaterOrEqual(t, len(sent), 2, "another one follows if heartbeats are late")
	for _, pull := range sent {
		require.Equal(t, 10, pull.Batch)
		require.True(t, pull.NoWait)
	}
}

func TestStatus409ConsumerDeleted(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(context.Context, jetstream.JetStream) error{
		"consumer": func(ctx context.Context, js jetstream.JetStream) error { return js.DeleteConsumer(ctx, "S", "C") },
		"stream":   func(ctx context.Context, js jetstream.JetStream) error { return js.DeleteStream(ctx, "S") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{})
			next, fetch := call(t.Context(), sub, 0, jetpull.MaxWait(forever)), call(t.Context(), sub, 5, jetpull.FillBatch(), jetpull.MaxWait(forever))
			r.waiting(t, 2)
			require.NoError(t, remove(t.Context(), r.js))
			for _, got := range []<-chan result{next, fetch} {
				err := receive(t, got, "end of the call").err
				requireStatus(t, err, 409, "Consumer Deleted", jetpull.ErrConsumerDeleted, jetstream.ErrConsumerDeleted, nats.ErrConsumerDeleted)
			}
			// And a 503 is reported with its meaning.
			err := receive(t, call(t.Context(), sub, 0, jetpull.MaxWait(forever)), "end of the call").err
			requireIs(t, err, jetpull.ErrConsumerDeleted, jetstream.ErrConsumerDeleted)
			require.NotZero(t, sub.Stats().Statuses[503])
		})
	}
}

// A pull that waits with an id that the server does not know any more hears of it when a
// message is next, and goes on without the id.
func TestStatus423IsHandled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, pinnedConsumer(), jetpull.Group("A"))
	r.publish(t, 1)
	ackAll(t, next(t, sub))
	got := call(t.Context(), sub, 0, jetpull.MaxWait(forever))
	r.waiting(t, 1)
	require.NoError(t, sub.Unpin(t.Context()))
	r.publish(t, 1)
	ackAll(t, served(t, got, "a message without the stale id")...)
	require.EqualValues(t, 1, sub.Stats().Statuses[423])
}
