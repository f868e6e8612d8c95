package test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// The tests here are of several processes on one consumer with a priority policy,
// in virtual time: what a process does not get it does not get however long one waits.

func priorityConsumer(policy jetstream.PriorityPolicy, groups ...string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{PriorityPolicy: policy, PriorityGroups: groups, AckWait: time.Minute}
}

func pinnedConsumer() jetstream.ConsumerConfig {
	return priorityConsumer(jetstream.PriorityPolicyPinned, "A")
}

func pinnedFor(ttl time.Duration) jetstream.ConsumerConfig {
	cfg := pinnedConsumer()
	cfg.PinnedTTL = ttl
	return cfg
}

// member is one process of a fleet.
type member struct {
	nc  *nats.Conn
	sub *jetpull.Subscription
	run *consuming
	got atomic.Int64
}

// hire starts a process that handles messages.
func (w *world) hire(handle jetpull.Handler, opts ...jetpull.Option) *member {
	w.t.Helper()
	m := &member{}
	m.nc, m.sub = w.client(append(opts, jetpull.Group("A"))...)
	m.run = consume(w.t, m.sub, func(ctx context.Context, msg *jetpull.Msg) error {
		m.got.Add(1)
		return handle(ctx, msg)
	})
	return m
}

func takes(d time.Duration) jetpull.Handler {
	return func(context.Context, *jetpull.Msg) error { pass(d); return nil }
}

// TestPinnedFleet: one process has all messages, and keeps its pin for longer than a pin
// lasts without pulls. When it dies another one has them within the priority timeout and a
// second, and when its pin is taken away within a second.
func TestPinnedFleet(t *testing.T) {
	const ttl = 2 * time.Second
	cfg := pinnedConsumer()
	cfg.PinnedTTL, cfg.MaxAckPending, cfg.AckWait = ttl, -1, 5*time.Second
	virtually(t, cfg, func(t *testing.T, w *world) {
		c := newChecker()
		c.key = noOrder // two have messages when a pin is taken away
		fleet, published := make([]*member, 3), 0
		for i := range fleet {
			fleet[i] = w.hire(c.noting(func(*jetpull.Msg) error { pass(time.Millisecond); return nil }))
		}
		runFor := func(d time.Duration) { // with a message each 5 ms
			for end := w.now() + d; w.now() < end; published++ {
				w.publish("s.a", 1)
				pass(5 * time.Millisecond)
			}
		}
		active := func(within time.Duration) (found *member) {
			t.Helper()
			runFor(within)
			before := map[*member]int64{}
			for _, m := range fleet {
				before[m] = m.got.Load()
				if id, _ := m.sub.Pin(); id == w.consumer.Pin() && !m.nc.IsClosed() {
					found = m
				}
			}
			runFor(3 * ttl)
			for _, m := range fleet {
				require.Equal(t, m == found, m.got.Load() > before[m], "the pinned one gets the messages, and a stand-by none")
			}
			return found
		}
		first := active(time.Second)
		first.nc.Close() // as if its process were killed
		c.Fault(w.consumer.Unsettled())
		require.ErrorIs(t, receive(t, first.run.done, "end of the one that was killed"), jetpull.ErrClosed)
		second := active(ttl + time.Second)
		require.NoError(t, second.sub.Unpin(t.Context()))
		third := active(time.Second)
		require.NotSame(t, second, third)
		w.settled()
		second.run.end(t)
		third.run.end(t)
		require.Empty(t, c.Verdict(published))
	}, jetpull.Group("A"))
}

// TestOverflowFleet: the second process helps while there is a backlog, again and
// again, and only then. Either threshold is enough.
func TestOverflowFleet(t *testing.T) {
	cfg := priorityConsumer(jetstream.PriorityPolicyOverflow, "A")
	cfg.MaxAckPending = 100
	for name, opts := range map[string][]jetpull.Option{
		"pending":     {jetpull.MinPending(200)},
		"ack pending": {jetpull.MinAckPending(12)},
		"either":      {jetpull.MinPending(1000), jetpull.MinAckPending(12)},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, cfg, func(t *testing.T, w *world) {
				first := w.hire(takes(2 * time.Millisecond))
				helper := w.hire(takes(2*time.Millisecond), opts...)
				for day := range 3 {
					before := helper.got.Load()
					for range 50 {
						w.publish("s.a", 1)
						pass(20 * time.Millisecond)
					}
					w.settled()
					require.Equal(t, before, helper.got.Load(), "day %d: without a backlog", day+1)
					w.publish("s.a", 500)
					w.settled()
					require.Greater(t, helper.got.Load(), before, "day %d: with a backlog", day+1)
				}
				require.EqualValues(t, 3*550, first.got.Load()+helper.got.Load())
				first.run.end(t)
				helper.run.end(t)
			}, jetpull.Group("A"))
		})
	}
}

// TestPrioritizedFleet: the second process has the messages while the first is not
// there, within a second, and only then.
func TestPrioritizedFleet(t *testing.T) {
	virtually(t, priorityConsumer(jetstream.PriorityPolicyPrioritized, "A"), func(t *testing.T, w *world) {
		second := w.hire(nothing, jetpull.Priority(5))
		for day := range 4 {
			first := w.hire(nothing)
			pass(time.Second)
			before := second.got.Load()
			for range 20 {
				w.publish("s.a", 1)
				pass(20 * time.Millisecond)
			}
			require.Equal(t, before, second.got.Load(), "day %d: while the first is there", day+1)
			require.EqualValues(t, 20, first.got.Load())
			if day%2 == 0 {
				first.run.end(t)
			} else {
				first.nc.Close()
				pass(roundTrip)
			}
			w.publish("s.a", 1)
			pass(time.Second)
			require.Equal(t, before+1, second.got.Load(), "day %d: when the first has gone", day+1)
		}
		second.run.end(t)
	}, jetpull.Group("A"))
}
