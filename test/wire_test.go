package test

import (
	"context"
	"encoding/json"
	"slices"
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

// checkBodies holds of every test: a pull is a JSON object.
func checkBodies(t *testing.T, ops []natstest.Op) {
	for _, op := range ops {
		if op.Subject != nextSubject {
			continue
		}
		var object map[string]any
		assert.NoError(t, json.Unmarshal(op.Body, &object), "body of a pull: %s", op)
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

// TestWireBusyCallsAreOnePublish: no SUB, no UNSUB, and a reply of its own for each pull.
func TestWireBusyCallsAreOnePublish(t *testing.T) {
	t.Parallel()
	const calls = 100
	for _, tc := range []struct {
		name, body string
		each       int // messages
		call       func(t *testing.T, w *tap)
	}{
		{"Fetch", `{"batch":10,"no_wait":true}`, 10, func(t *testing.T, w *tap) { require.Len(t, fetch(t, w.sub, 10), 10) }},
		{"Next", `{"batch":1,"no_wait":true}`, 1, func(t *testing.T, w *tap) { next(t, w.sub) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newTap(t, jetstream.ConsumerConfig{MaxAckPending: -1})
			n := tc.each * (calls + 10)
			w.publish(t, n)
			w.pending(t, uint64(n))
			for i := range calls + 10 {
				if i == 10 {
					w.sync(t)
					w.wire.Reset()
				}
				tc.call(t, w)
			}
			ops := w.sync(t)
			if silent := w.sub.Stats().Silent; silent > 0 {
				t.Skipf("the machine is too busy: %d pulls had no answer for half a second", silent)
			}
			replies := map[string]bool{}
			for _, op := range pick(ops, "PUB") {
				if op.Subject != nextSubject {
					continue // the request for info
				}
				require.Equal(t, tc.body, string(op.Body))
				require.False(t, replies[op.Reply], "a reply twice")
				replies[op.Reply] = true
			}
			require.Len(t, replies, calls)
			require.Len(t, pick(ops, "PUB"), calls+1, "and the one that asks for info")
			require.Empty(t, pick(ops, "SUB"))
			require.Empty(t, pick(ops, "UNSUB"))
		})
	}
}

// TestWireIdleFetchInTwoPhases: a no-wait pull on an inbox that is there, and a long one
// on an inbox of its own, which goes when the caller goes.
func TestWireIdleFetchInTwoPhases(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		opts    []jetpull.Option
		oneShot bool
		beat    time.Duration
	}{
		{"plain", nil, true, time.Second},
		{"fill", []jetpull.Option{jetpull.FillBatch()}, false, time.Second},
		{"heartbeat", []jetpull.Option{jetpull.Heartbeat(100 * time.Millisecond)}, true, 100 * time.Millisecond},
		{"max bytes", []jetpull.Option{jetpull.MaxBytes(1 << 20)}, true, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newTap(t, jetstream.ConsumerConfig{})
			pooled := pick(w.sync(t), "SUB")
			w.wire.Reset()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			start := time.Now()
			got := call(ctx, w.sub, 7, append(tc.opts, jetpull.MaxWait(forever))...)
			w.waiting(t, 1)
			ops := w.sync(t)
			sent, own := pick(ops, "PUB", nextSubject), pick(ops, "SUB")
			require.Len(t, sent, 2)
			look, long := object(t, sent[0].Body), object(t, sent[1].Body)
			require.EqualValues(t, 7, look["batch"])
			require.Equal(t, true, look["no_wait"])
			require.NotContains(t, look, "expires")
			require.True(t, coveredBy(pooled, sent[0].Reply), "phase one answers to an inbox that was there: %s", sent[0])
			require.Len(t, own, 1)
			require.Equal(t, own[0].Subject, sent[1].Reply)
			requireOrder(t, ops, own[0], sent[1])
			require.EqualValues(t, 7, long["batch"])
			require.EqualValues(t, tc.beat, long["idle_heartbeat"])
			require.Equal(t, tc.oneShot, long["no_wait"] == true)
			requireExpires(t, sent[1], start, forever-margin)
			require.Empty(t, pick(ops, "UNSUB"), "heartbeats would count against a maximum")
			cancel()
			requireIs(t, receive(t, got, "end of the call").err, context.Canceled)
			w.wire.Wait(func(ops []natstest.Op) bool {
				for _, op := range pick(ops, "UNSUB") {
					if op.SID == own[0].SID && op.Max == 0 {
						return true
					}
				}
				return false
			})
		})
	}
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
	index := func(op natstest.Op) int {
		return slices.IndexFunc(ops, func(o natstest.Op) bool { return o.String() == op.String() })
	}
	require.GreaterOrEqual(t, index(first), 0)
	require.Less(t, index(first), index(second))
}

// TestWireOptionsOfAPull: both phases carry the terms, and nothing else.
func TestWireOptionsOfAPull(t *testing.T) {
	overflow := priorityConsumer(jetstream.PriorityPolicyOverflow, "A", "B")
	group := jetpull.Group("A")
	for name, tc := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts []jetpull.Option
		want natstest.PullRequest
	}{
		"max bytes":                   {jetstream.ConsumerConfig{}, []jetpull.Option{jetpull.MaxBytes(4096)}, natstest.PullRequest{MaxBytes: 4096}},
		"overflow":                    {overflow, []jetpull.Option{jetpull.Group("B"), jetpull.MinPending(7), jetpull.MinAckPending(9)}, natstest.PullRequest{Group: "B", MinPending: 7, MinAckPending: 9}},
		"overflow without thresholds": {overflow, []jetpull.Option{group}, natstest.PullRequest{Group: "A"}},
		"priority":                    {priorityConsumer(jetstream.PriorityPolicyPrioritized, "A"), []jetpull.Option{group, jetpull.Priority(4)}, natstest.PullRequest{Group: "A", Priority: 4}},
		"pinned, before the pin":      {pinnedConsumer(), []jetpull.Option{group}, natstest.PullRequest{Group: "A"}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, tc.cfg, func(t *testing.T, w *world) {
				_, err := w.sub.Fetch(t.Context(), 3, jetpull.MaxWait(time.Second))
				requireIs(t, err, jetpull.ErrTimeout)
				sent := pick(w.model.Peer().Ops(), "PUB", nextSubject)
				require.GreaterOrEqual(t, len(sent), 2)
				for _, op := range sent {
					var got natstest.PullRequest
					require.NoError(t, json.Unmarshal(op.Body, &got))
					got.Batch, got.Expires, got.Heartbeat, got.NoWait = 0, 0, 0, false
					require.Equal(t, tc.want, got)
				}
			}, tc.opts...)
		})
	}
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
		got = append(got, call(t.Context(), w.sub, 0, jetpull.MaxWait(forever)))
	}
	w.publish(t, callers)
	w.proxy.Hold(false)
	for _, ch := range got {
		served(t, ch, "a message for each caller")
	}
	require.Less(t, len(pulls(t, w.sync(t))), callers/2, "callers that come while a pull is in flight share the next")
}
