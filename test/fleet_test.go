package test

import (
	"context"
	"fmt"
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

func TestPinnedFleet(t *testing.T) {
	const ttl = 2 * time.Second
	cfg := pinnedConsumer()
	cfg.PinnedTTL, cfg.MaxAckPending, cfg.AckWait = ttl, -1, 5*time.Second
	virtually(t, cfg, func(t *testing.T, w *world) {
		c := newChecker()
		c.key = noOrder // two have messages when a pin is taken away
		fleet := make([]*member, 3)
		for i := range fleet {
			fleet[i] = w.hire(c.noting(func(*jetpull.Msg) error { pass(time.Millisecond); return nil }))
		}
		stop, total := make(chan struct{}), make(chan int)
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					total <- n
					return
				case <-time.After(5 * time.Millisecond):
					w.publish("s.a", 1)
				}
			}
		}()
		// active is the one that gets messages now, and for longer than a pin lasts
		// without pulls.
		active := func(within time.Duration) (found *member) {
			t.Helper()
			var before []int64
			for _, m := range fleet {
				before = append(before, m.got.Load())
			}
			pass(within + slack)
			for i, m := range fleet {
				if id, held := m.sub.Pin(); held && id == w.consumer.Pin() && !m.nc.IsClosed() {
					require.Greater(t, m.got.Load(), before[i], "it is pinned")
					found = m
				}
			}
			require.NotNil(t, found, "nobody is pinned")
			for _, m := range fleet {
				before := m.got.Load()
				if m != found {
					defer func() { require.Equal(t, before, m.got.Load(), "a stand-by") }()
				}
			}
			pass(3 * ttl)
			require.Equal(t, found.sub.Stats().Pin, w.consumer.Pin())
			return found
		}
		first := active(time.Second)
		first.nc.Close() // as if its process were killed
		c.Fault(w.consumer.Unsettled())
		require.ErrorIs(t, receive(t, first.run.done, "end of the one that was killed"), jetpull.ErrClosed)
		second := active(ttl + time.Second)
		require.NotSame(t, first, second)
		require.NoError(t, second.sub.Unpin(t.Context()))
		third := active(time.Second)
		require.NotSame(t, second, third)
		close(stop)
		n := <-total
		w.settled()
		second.run.end(t)
		third.run.end(t)
		require.Empty(t, c.Verdict(n))
	}, jetpull.Group("A"))
}

// TestOverflowFleet: the second process helps while there is a backlog, again and
// again, and only then.
func TestOverflowFleet(t *testing.T) {
	cfg := priorityConsumer(jetstream.PriorityPolicyOverflow, "A")
	cfg.MaxAckPending = 100
	virtually(t, cfg, func(t *testing.T, w *world) {
		first := w.hire(takes(2 * time.Millisecond))
		helper := w.hire(takes(2*time.Millisecond), jetpull.MinPending(200))
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

func TestOverflowThresholds(t *testing.T) {
	group := jetpull.Group("A")
	for name, tc := range map[string]struct {
		opts          []jetpull.Option
		under, enough func(*testing.T, *world, *jetpull.Subscription)
	}{
		"pending": {
			[]jetpull.Option{jetpull.MinPending(10)},
			func(_ *testing.T, w *world, _ *jetpull.Subscription) { w.publish("s.a", 9) },
			func(_ *testing.T, w *world, _ *jetpull.Subscription) { w.publish("s.a", 1) },
		},
		"ack pending": {
			[]jetpull.Option{jetpull.MinAckPending(3)},
			func(t *testing.T, w *world, first *jetpull.Subscription) { w.publish("s.a", 5); fetch(t, first, 2) },
			func(t *testing.T, _ *world, first *jetpull.Subscription) { next(t, first) },
		},
		"either": {
			[]jetpull.Option{jetpull.MinPending(1000), jetpull.MinAckPending(1)},
			func(_ *testing.T, w *world, _ *jetpull.Subscription) { w.publish("s.a", 5) },
			func(t *testing.T, _ *world, first *jetpull.Subscription) { next(t, first) },
		},
	} {
		for _, n := range []int{0, 100} {
			t.Run(fmt.Sprintf("%s, n %d", name, n), func(t *testing.T) {
				virtually(t, priorityConsumer(jetstream.PriorityPolicyOverflow, "A"), func(t *testing.T, w *world) {
					_, first := w.client(group)
					tc.under(t, w, first)
					_, err := w.sub.Fetch(t.Context(), 100, append(tc.opts, jetpull.MaxWait(20*time.Second))...)
					requireIs(t, err, jetpull.ErrTimeout)
					got := call(t.Context(), w.sub, n, append(tc.opts, jetpull.MaxWait(forever))...)
					pass(time.Second)
					tc.enough(t, w, first)
					require.NotEmpty(t, served(t, got, "the overflow"))
				}, group)
			})
		}
	}
}

// TestPriorities: of the pulls that wait that of the best priority is served first,
// whether they are of one Subscription or of several.
func TestPriorities(t *testing.T) {
	for name, several := range map[string]bool{"one Subscription": false, "several": true} {
		t.Run(name, func(t *testing.T) {
			virtually(t, priorityConsumer(jetstream.PriorityPolicyPrioritized, "A"), func(t *testing.T, w *world) {
				var got []<-chan result
				for _, priority := range []int{9, 5, 1, 0} { // the worst comes first to the queue
					sub := w.sub
					if several {
						_, sub = w.client(jetpull.Group("A"))
					}
					got = append(got, call(t.Context(), sub, 0, jetpull.Priority(priority), jetpull.MaxWait(forever)))
					pass(time.Second)
				}
				for served := range 4 {
					w.publish("s.a", 1)
					res := receive(t, got[3-served], "the message for the best priority that waits")
					require.NoError(t, res.err)
					for _, worse := range got[:3-served] {
						require.Empty(t, worse)
					}
				}
			}, jetpull.Group("A"))
		})
	}
}
