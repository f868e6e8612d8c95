package test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here look at the bytes that go to the server, through a proxy
// that records them.

const nextSubject = "$JS.API.CONSUMER.MSG.NEXT.S.C"

// tap is a rig whose subscription goes through a recording proxy.
type tap struct {
	*rig
	sub   *jetpull.Subscription
	id    uint64 // of the connection, at the server
	wire  *natstest.Recording
	proxy *natstest.Proxy
}

func newTap(t *testing.T, cfg jetstream.ConsumerConfig, opts ...jetpull.Option) *tap {
	t.Helper()
	r := newRig(t)
	r.consumer(t, cfg)
	proxy := natstest.NewProxy(t, r.server.URL())
	rec := proxy.Record()
	nc := connect(t, proxy.URL())
	t.Cleanup(func() { checkBodies(t, rec.Ops()) })
	id, err := nc.GetClientID()
	require.NoError(t, err)
	return &tap{rig: r, sub: subscribe(t, natstest.JetStream(t, nc), "S", "C", opts...), id: id, wire: rec, proxy: proxy}
}

// checkBodies holds of every test: a pull is a JSON object, on the API or
// behind the verb of an acknowledgement.
func checkBodies(t *testing.T, ops []natstest.Op) {
	for _, op := range ops {
		body, next := strings.CutPrefix(string(op.Body), "+NXT ")
		if op.Subject != nextSubject && !next {
			continue
		}
		var object map[string]any
		assert.NoError(t, json.Unmarshal([]byte(body), &object), "body of a pull: %s", op)
		assert.NotEmpty(t, object, "%s", op)
		assert.NotEmpty(t, op.Reply, "%s", op)
		assert.NotEqual(t, natstest.VerbUnparsed, op.Verb, "%s", op)
	}
}

// sync waits until all that the client has sent is recorded.
func (w *tap) sync(t *testing.T) []natstest.Op {
	t.Helper()
	_, err := w.sub.Info(t.Context())
	require.NoError(t, err)
	return w.wire.Ops()
}

func pick(ops []natstest.Op, verb string, subject ...string) []natstest.Op {
	var out []natstest.Op
	for _, op := range ops {
		if op.Verb == verb && (len(subject) == 0 || op.Subject == subject[0]) {
			out = append(out, op)
		}
	}
	return out
}

// pulls are the bodies of the requests on MSG.NEXT.
func pulls(t *testing.T, ops []natstest.Op) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, op := range pick(ops, "PUB", nextSubject) {
		out = append(out, object(t, op.Body))
	}
	return out
}

func object(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal(body, &fields), "%s", body)
	return fields
}

func TestWireBusyFetchIsOnePublish(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{MaxAckPending: -1})
	w.publish(t, 1100)
	w.pending(t, 1100)
	fetch := func() {
		t.Helper()
		msgs, err := w.sub.Fetch(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, msgs, 10)
	}
	for range 10 {
		fetch()
	}
	w.sync(t)
	w.wire.Reset()
	for range 100 {
		fetch()
	}
	ops := w.sync(t)
	require.Len(t, pick(ops, "PUB", nextSubject), 100)
	require.Empty(t, pick(ops, "SUB"))
	require.Empty(t, pick(ops, "UNSUB"))
	replies := map[string]bool{}
	for _, op := range pick(ops, "PUB", nextSubject) {
		require.Equal(t, `{"batch":10,"no_wait":true}`, string(op.Body))
		require.False(t, replies[op.Reply], "each pull has a reply of its own")
		replies[op.Reply] = true
	}
}

func TestWireBusyNextIsOnePublish(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{})
	w.publish(t, 110)
	w.pending(t, 110)
	for i := range 110 {
		if i == 10 {
			w.sync(t)
			w.wire.Reset()
		}
		m, err := w.sub.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Ack())
	}
	ops := w.sync(t)
	require.Len(t, pick(ops, "PUB", nextSubject), 100)
	require.Len(t, pick(ops, "PUB"), 201, "a pull and an ack each, and the one that asks for info")
	require.Empty(t, pick(ops, "SUB"))
	require.Empty(t, pick(ops, "UNSUB"))
}

func TestWireIdleFetchInTwoPhases(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{})
	w.sync(t)
	subscribed := w.wire.Ops()
	w.wire.Reset()
	start := time.Now()
	_, err := w.sub.Fetch(t.Context(), 7, jetpull.MaxWait(600*time.Millisecond))
	requireIs(t, err, jetpull.ErrTimeout)
	ops := w.sync(t)

	next := pick(ops, "PUB", nextSubject)
	require.Len(t, next, 2)
	require.Equal(t, `{"batch":7,"no_wait":true}`, string(next[0].Body))
	pooled := pick(subscribed, "SUB")
	require.True(t, coveredBy(pooled, next[0].Reply), "phase one answers to an inbox that was there: %s", next[0])

	own := pick(ops, "SUB")
	require.Len(t, own, 1)
	require.Equal(t, own[0].Subject, next[1].Reply, "phase two has an inbox of its own")
	long := object(t, next[1].Body)
	require.EqualValues(t, 7, long["batch"])
	requireExpires(t, next[1], start, 500*time.Millisecond)
	require.NotContains(t, long, "idle_heartbeat")
	unsub := pick(ops, "UNSUB")
	require.NotEmpty(t, unsub)
	require.Equal(t, own[0].SID, unsub[0].SID)
	require.Equal(t, 8, unsub[0].Max, "n messages and one status")
	requireOrder(t, ops, own[0], next[1])
}

// coveredBy says whether one of the subscriptions takes what is sent to reply.
func coveredBy(subs []natstest.Op, reply string) bool {
	for _, s := range subs {
		if prefix, ok := strings.CutSuffix(s.Subject, "*"); ok && strings.HasPrefix(reply, prefix) && !strings.Contains(reply[len(prefix):], ".") {
			return true
		}
	}
	return false
}

// requireExpires wants a pull that a call from start on has sent to expire when
// want has passed since start.
func requireExpires(t *testing.T, pull natstest.Op, start time.Time, want time.Duration) {
	t.Helper()
	ns, ok := object(t, pull.Body)["expires"].(float64)
	require.True(t, ok, "no expires in %s", pull)
	require.LessOrEqual(t, time.Duration(ns), want)
	require.GreaterOrEqual(t, time.Duration(ns), want-pull.At.Sub(start))
}

func requireOrder(t *testing.T, ops []natstest.Op, first, second natstest.Op) {
	t.Helper()
	for _, op := range ops {
		switch op.String() {
		case first.String():
			return
		case second.String():
			t.Fatalf("%s comes before %s", second, first)
		}
	}
	t.Fatalf("neither %s nor %s was sent", first, second)
}

func TestWireLongWaitAsksForHeartbeats(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := time.Now()
	got := call(ctx, w.sub, 3, jetpull.MaxWait(30*time.Second), jetpull.FillBatch())
	w.waiting(t, 1)
	ops := w.sync(t)
	all := pick(ops, "PUB", nextSubject)
	requireExpires(t, all[len(all)-1], start, 30*time.Second-100*time.Millisecond)
	long := object(t, all[len(all)-1].Body)
	require.EqualValues(t, 5*time.Second, long["idle_heartbeat"])
	require.NotContains(t, long, "no_wait", "a batch to fill is no one-shot")
	require.Empty(t, pick(ops, "UNSUB"), "heartbeats would count against a maximum")
	cancel()
	receive(t, got, "end of the call")
}

func TestWireAckNextIsOnePublish(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{})
	w.publish(t, 51)
	w.pending(t, 51)
	m, err := w.sub.Next(t.Context())
	require.NoError(t, err)
	w.sync(t)
	w.wire.Reset()
	acks := []string{}
	for range 50 {
		acks = append(acks, m.Reply())
		m, err = m.AckNext(t.Context())
		require.NoError(t, err)
	}
	ops := w.sync(t)
	var sent []string
	for _, op := range pick(ops, "PUB") {
		if body, ok := strings.CutPrefix(string(op.Body), "+NXT "); ok {
			require.Equal(t, `{"batch":1,"no_wait":true}`, body)
			sent = append(sent, op.Subject)
		}
	}
	require.Equal(t, acks, sent)
	require.Empty(t, pick(ops, "PUB", nextSubject))
	require.Len(t, pick(ops, "PUB"), 51, "and the one that asks for info")
	require.Empty(t, pick(ops, "SUB"))
	require.Empty(t, pick(ops, "UNSUB"))
}

func TestWireOptionsOfAPull(t *testing.T) {
	t.Parallel()
	overflow := jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"A", "B"}}
	prioritized := jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"A"}}
	pinned := jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A"}}
	for _, tc := range []struct {
		name string
		cfg  jetstream.ConsumerConfig
		opts []jetpull.Option
		want map[string]any
	}{
		{"max bytes", jetstream.ConsumerConfig{}, []jetpull.Option{jetpull.MaxBytes(4096)}, map[string]any{"max_bytes": 4096.}},
		{"overflow", overflow, []jetpull.Option{jetpull.Group("B"), jetpull.MinPending(7), jetpull.MinAckPending(9)}, map[string]any{"group": "B", "min_pending": 7., "min_ack_pending": 9.}},
		{"overflow without thresholds", overflow, []jetpull.Option{jetpull.Group("A")}, map[string]any{"group": "A"}},
		{"priority", prioritized, []jetpull.Option{jetpull.Group("A"), jetpull.Priority(4)}, map[string]any{"group": "A", "priority": 4.}},
		{"pinned, before the pin", pinned, []jetpull.Option{jetpull.Group("A")}, map[string]any{"group": "A"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newTap(t, tc.cfg, tc.opts...)
			_, err := w.sub.Fetch(t.Context(), 3, jetpull.MaxWait(time.Second))
			requireIs(t, err, jetpull.ErrTimeout)
			all := pulls(t, w.sync(t))
			require.GreaterOrEqual(t, len(all), 2)
			for _, pull := range all {
				for _, own := range []string{"expires", "no_wait"} {
					delete(pull, own)
				}
				want := map[string]any{"batch": 3.}
				for k, v := range tc.want {
					want[k] = v
				}
				require.Equal(t, want, pull, "both phases carry the terms and nothing else")
			}
		})
	}
}

// Where other clients claim all that is pending, the server refuses a no-wait
// pull with 408 Requests Pending, the one-shot too. That passes.
func TestWireRequestsPendingIsNoOldServer(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute})
	w.publish(t, 2)
	w.pending(t, 2)
	first, err := w.sub.Next(t.Context())
	require.NoError(t, err)
	foreign := rawPull(t, w.nc, `{"batch":5,"expires":60000000000}`)
	w.waiting(t, 1)
	got := call(t.Context(), w.sub, 10, jetpull.MaxWait(patience))
	w.waiting(t, 2)
	all := pulls(t, w.sync(t))
	require.EqualValues(t, 1, all[len(all)-1]["batch"], "a plain pull for the first message")
	require.NotContains(t, all[len(all)-1], "no_wait")
	require.NoError(t, foreign.Unsubscribe())
	ackAll(t, first)
	res := receive(t, got, "the second message")
	require.NoError(t, res.err)
	ackAll(t, res.msgs...)

	w.sync(t)
	w.wire.Reset()
	start := time.Now()
	_, err = w.sub.Fetch(t.Context(), 10, jetpull.MaxWait(time.Second))
	requireIs(t, err, jetpull.ErrTimeout)
	sent := pick(w.sync(t), "PUB", nextSubject)
	require.Len(t, sent, 2)
	again := object(t, sent[1].Body)
	require.EqualValues(t, 10, again["batch"])
	require.Equal(t, true, again["no_wait"], "a one-shot again")
	requireExpires(t, sent[1], start, 900*time.Millisecond)
}

func TestWireCallersShareAPull(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{})
	const callers = 40
	var got []<-chan result
	// The server's answers are held back, so all but the first caller come
	// while a pull is in flight.
	w.proxy.Hold(true)
	for range callers {
		got = append(got, call(t.Context(), w.sub, 0, jetpull.MaxWait(patience)))
	}
	w.publish(t, callers)
	w.proxy.Hold(false)
	for _, ch := range got {
		res := receive(t, ch, "a message for each caller")
		require.NoError(t, res.err)
	}
	require.Less(t, len(pulls(t, w.sync(t))), callers/2, "callers that come while a pull is in flight share the next")
}

func TestWireCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{})
	w.publish(t, 3)
	msgs, err := w.sub.Fetch(t.Context(), 3)
	require.NoError(t, err)
	ackAll(t, msgs...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := call(ctx, w.sub, 1, jetpull.MaxWait(patience))
	w.waiting(t, 1)
	w.sync(t)
	require.NoError(t, w.sub.Close(t.Context()))
	requireIs(t, receive(t, got, "end of the call").err, jetpull.ErrClosed)
	open := func(ops []natstest.Op) map[string]string {
		subs := map[string]string{}
		for _, op := range ops {
			switch {
			case op.Verb == "SUB" && strings.HasPrefix(op.Subject, "_INBOX."):
				subs[op.SID] = op.Subject
			case op.Verb == "UNSUB" && op.Max == 0:
				delete(subs, op.SID)
			}
		}
		return subs
	}
	// What stays is nats.go's own inbox for requests.
	w.wire.Wait(func(ops []natstest.Op) bool { return len(open(ops)) <= 1 })
	w.waiting(t, 0)
}
