package test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// The tests here stop a pinned client. The priority timeout is two minutes, as by
// default, so a stand-by that goes on before has got the pin from the one that stopped.

const unpinSubject = "$JS.API.CONSUMER.UNPIN.S.C"

// pinnedStops are the ways in which a client that is pinned stops, with one
// message in hand at which it stops.
var pinnedStops = map[string]func(t *testing.T, sub *jetpull.Subscription, inHand func(stop func())){
	"Consume": func(t *testing.T, sub *jetpull.Subscription, inHand func(stop func())) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		assert.NoError(t, sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { inHand(stop); return nil }))
	},
	"Messages": func(t *testing.T, sub *jetpull.Subscription, inHand func(stop func())) {
		for m, err := range sub.Messages(t.Context()) {
			assert.NoError(t, err)
			inHand(func() {})
			assert.NoError(t, m.Ack())
			break
		}
	},
	"Close": func(t *testing.T, sub *jetpull.Subscription, inHand func(stop func())) {
		m, err := sub.Next(t.Context())
		assert.NoError(t, err)
		inHand(func() {})
		assert.NoError(t, m.DoubleAck(t.Context()))
		assert.NoError(t, sub.Close(t.Context()))
	},
}

func TestAPinIsGivenUpAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, stop := range pinnedStops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			first := r.subscribe(t, pinnedConsumer(), jetpull.Group("A"))
			r.publish(t, 1)
			got := make(chan *jetpull.Msg, 10)
			var standby *consuming
			stop(t, first, func(end func()) {
				_, held := first.Pin()
				assert.True(t, held)
				other := subscribe(t, natstest.JetStream(t, connect(t, r.server.URL())), "S", "C", jetpull.Group("A"))
				pulls := other.Stats().Pulls
				standby = consume(t, other, func(_ context.Context, m *jetpull.Msg) error { got <- m; return nil })
				statsBecome(t, other, "the stand-by pulls", func(s jetpull.Stats) bool { return s.Pulls > pulls })
				end()
			})
			natstest.Publish(t, r.js, "s.b", 1)
			require.Equal(t, "s.b", receive(t, got, "a message for the stand-by").Subject())
			standby.end(t)
		})
	}
}

// TestAPinIsKeptUntilAllIsSettled, and given up within 100 ms after.
func TestAPinIsKeptUntilAllIsSettled(t *testing.T) {
	const drain = 3 * time.Second
	for name, stop := range pinnedStops {
		t.Run(name, func(t *testing.T) {
			virtually(t, pinnedConsumer(), func(t *testing.T, w *world) {
				w.publish("s.a", 1)
				_, other := w.client(jetpull.Group("A"))
				var at time.Duration
				var standby *consuming
				stop(t, w.sub, func(end func()) {
					standby = consume(t, other, func(context.Context, *jetpull.Msg) error { at = w.now(); return nil })
					end()
					pass(drain)
					w.publish("s.b", 1) // for which a stand-by need not wait longer
				})
				ended := w.now()
				w.settled()
				standby.end(t)
				require.LessOrEqual(t, at, ended+100*time.Millisecond)
				unpinned := w.events(0, model.Unpinned)
				require.NotEmpty(t, unpinned)
				require.Equal(t, "admin", unpinned[0].Text, "not by the priority timeout")
				settled := w.events(1, model.Acked)
				require.Len(t, settled, 1)
				require.False(t, unpinned[0].At.Before(settled[0].At), "after its last message is settled")
			}, jetpull.Group("A"))
		})
	}
}

// TestAPinOfAnotherIsLeftAlone: the pin was taken away and another client has it.
func TestAPinOfAnotherIsLeftAlone(t *testing.T) {
	virtually(t, pinnedConsumer(), func(t *testing.T, w *world) {
		_, other := w.client(jetpull.Group("A"))
		first := consume(t, w.sub, func(context.Context, *jetpull.Msg) error { return nil })
		w.publish("s.a", 1)
		w.settled()
		w.consumer.Unpin("A")
		second := consume(t, other, func(context.Context, *jetpull.Msg) error { return nil })
		w.until(func() bool {
			w.publish("s.a", 1) // a pin is given with a message
			_, first := w.sub.Pin()
			_, second := other.Pin()
			if first {
				w.consumer.Unpin("A")
			}
			return second && !first
		}, "the second client is pinned")
		first.end(t)
		require.Zero(t, w.requests(unpinSubject))
		pin, _ := other.Pin()
		require.Equal(t, w.consumer.Pin(), pin)
		second.end(t)
		require.Equal(t, 1, w.requests(unpinSubject))
		require.Empty(t, w.consumer.Pin())
	}, jetpull.Group("A"))
}

// TestAnUnpinThatFailsCostsNothing: a client that may not send it stops as well as
// another.
func TestAnUnpinThatFailsCostsNothing(t *testing.T) {
	t.Parallel()
	js, _, _ := deniable(t, "$JS.API.CONSUMER.UNPIN.S.P")
	cfg := pinnedConsumer()
	cfg.Durable, cfg.PinnedTTL, cfg.AckWait = "P", time.Second, forever // for the next one of this test
	natstest.Consumer(t, js, "S", cfg)
	for _, stop := range pinnedStops {
		natstest.Publish(t, js, "s.a", 1) // the one before may have handled all that there were
		sub := subscribe(t, js, "S", "P", jetpull.Group("A"))
		stop(t, sub, func(end func()) { end() })
		require.NoError(t, sub.Close(t.Context()))
	}
	rest := consume(t, subscribe(t, js, "S", "P", jetpull.Group("A")), func(context.Context, *jetpull.Msg) error { return nil })
	consumerHas(t, js, "S", "P", func(i *jetstream.ConsumerInfo) bool { return i.NumAckPending == 0 && i.NumPending == 0 }, "what was in hand was settled or handed back")
	rest.end(t)
}

// The server tells which client is pinned under the name of the consumer's first group, whichever group that is in.
func TestAPinOfAnotherGroupIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"A", "B"} {
		r := newRig(t)
		cfg := pinnedConsumer()
		cfg.PriorityGroups = []string{"A", "B"}
		sub := r.subscribe(t, cfg, jetpull.Group("A"))
		r.publish(t, 1)
		ctx, end := context.WithCancel(t.Context())
		require.NoError(t, sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { end(); return nil }, jetpull.Group(group)))
		info, err := sub.Info(t.Context())
		require.NoError(t, err)
		for _, g := range info.PriorityGroups {
			require.Empty(t, g.PinnedClientID)
		}
	}
}
