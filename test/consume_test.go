package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

var byKey = jetpull.OrderedBy((*jetpull.Msg).Subject)

func nothing(context.Context, *jetpull.Msg) error { return nil }

// TestConsumePullsAgainInTime: from when it is possible, a second where that shows,
// and five where the server drops pulls without a word.
func TestConsumePullsAgainInTime(t *testing.T) {
	const out = 7 * time.Second
	cluster := model.Config{Replicas: 3, Quorum: model.Delay{Min: roundTrip, Max: roundTrip}, Outage: model.Delay{Min: out, Max: out}}
	reachable := func(w *world) { w.model.Peer().Refuse(false) }
	for _, tc := range []struct {
		name    string
		servers model.Config
		cfg     jetstream.ConsumerConfig
		begin   func(*world)
		end     func(*world)
		within  time.Duration
	}{
		{"a cut", model.Config{}, jetstream.ConsumerConfig{}, func(w *world) { w.model.Peer().Cut() }, reachable, time.Second},
		{"an outage", model.Config{}, jetstream.ConsumerConfig{}, func(w *world) { w.model.Peer().Refuse(true); w.model.Peer().Cut() }, reachable, time.Second},
		{"a black hole", model.Config{}, jetstream.ConsumerConfig{}, func(w *world) { w.model.Peer().Pause(true) }, func(w *world) { w.model.Peer().Cut(); w.model.Peer().Pause(false) }, time.Second},
		{"a stopped server", model.Config{}, jetstream.ConsumerConfig{}, func(w *world) { w.model.Shutdown() }, func(w *world) { w.model.Start() }, time.Second},
		{"a crashed server", model.Config{}, jetstream.ConsumerConfig{}, func(w *world) { w.model.Crash() }, func(w *world) { w.model.Start() }, time.Second},
		{"503", model.Config{Remote: true}, jetstream.ConsumerConfig{}, func(w *world) { w.model.Shutdown() }, func(w *world) { w.model.Start() }, time.Second},
		{"a change of leader", cluster, jetstream.ConsumerConfig{}, func(w *world) { w.consumer.StepDown() }, func(w *world) {
			w.until(func() bool { return len(w.events(0, model.LeaderNew)) > 1 }, "a new leader")
		}, time.Second},
		{"a server of the cluster that stops", cluster, jetstream.ConsumerConfig{}, func(w *world) { w.model.Shutdown() }, func(w *world) {
			w.until(func() bool { return len(w.events(0, model.LeaderNew)) > 1 }, "a new leader")
		}, time.Second},
		{"a pause", model.Config{}, jetstream.ConsumerConfig{}, func(w *world) { w.consumer.Pause(time.Now().Add(out)) }, func(*world) {}, time.Second},
		{"MaxWaiting", model.Config{}, jetstream.ConsumerConfig{MaxWaiting: 1}, func(w *world) {
			w.model.Peer().Cut() // and another client is quicker
			w.until(w.nc.IsReconnecting, "the connection is lost")
			w.other, _ = w.client()
			rawPull(w.t, w.other, fmt.Sprintf(`{"batch":1,"expires":%d}`, forever))
		}, func(w *world) { w.other.Close(); pass(roundTrip) }, 5 * time.Second},
	} {
		for name, backlog := range map[string]int{"idle": 0, "busy": 40} {
			t.Run(name+" over "+tc.name, func(t *testing.T) {
				virtuallyOn(t, tc.servers, tc.cfg, func(t *testing.T, w *world) {
					c := newChecker()
					run := consume(t, w.sub, c.handler(time.Millisecond), jetpull.Concurrency(2), byKey)
					pass(40 * time.Second)
					w.publish("s.a", backlog)
					c.wait(t, backlog/2, patience)
					tc.begin(w)
					pass(out)
					tc.end(w)
					w.publish("s.b", 1)
					pass(tc.within + 2*slack)
					n, _ := c.Handled()
					require.Greater(t, n, backlog/2, "messages that were handled")
					w.settled()
					run.end(t)
					require.Empty(t, c.Verdict(backlog+1))
				})
			})
		}
	}
}

// TestConsumeEndsOrWaitsWithItsConsumer, and asks for it only now and then.
func TestConsumeEndsOrWaitsWithItsConsumer(t *testing.T) {
	cfg := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}
	virtually(t, cfg, func(t *testing.T, w *world) {
		c := newChecker()
		ends := consume(t, w.sub, nothing)
		waits := consume(t, w.sub, c.handler(0), jetpull.AwaitConsumer())
		pass(time.Second)
		for round := range 3 {
			w.consumer.Delete()
			if round == 0 {
				require.ErrorIs(t, receive(t, ends.done, "end of Consume"), jetpull.ErrConsumerDeleted)
			}
			pulls := w.sub.Stats().Pulls
			pass(time.Minute)
			require.LessOrEqual(t, w.sub.Stats().Pulls-pulls, uint64(100), "pulls while there is none")
			cfg.Durable = "C"
			w.consumer = w.model.AddConsumer("S", cfg)
			w.publish("s.a", 10)
			pass(time.Second + slack)
			require.Equal(t, 10*(round+1), c.count())
		}
		waits.end(t)
		require.Empty(t, c.Verdict(30))
	})
}

// TestConsumeSlowHandler: nothing is delivered again because its turn comes late.
func TestConsumeSlowHandler(t *testing.T) {
	for name, opts := range map[string][]jetpull.Option{"defaults": nil, "four at a time": {jetpull.Concurrency(4)}, "by key": {byKey, jetpull.Concurrency(4)}} {
		t.Run(name, func(t *testing.T) {
			const messages = 300
			virtually(t, jetstream.ConsumerConfig{AckWait: time.Second}, func(t *testing.T, w *world) {
				c := newChecker()
				if name != "by key" {
					c.key = noOrder
				}
				run := consume(t, w.sub, c.noting(func(m *jetpull.Msg) error {
					if pass(20 * time.Millisecond); m.Sequence()%100 == 0 {
						pass(20 * time.Second)
					}
					return nil
				}), opts...)
				w.publish("s.a", messages/2)
				w.publish("s.b", messages/2)
				w.settled()
				run.end(t)
				require.Equal(t, messages, c.Began(), "one call of the handler for each")
				require.Empty(t, w.events(0, model.Overdue))
				require.Empty(t, c.Verdict(messages))
			})
		})
	}
}

// TestConsumeOverALongWay: 100 ms each way. Windows have to grow, or the messages
// would come at the pace of round trips.
func TestConsumeOverALongWay(t *testing.T) {
	const messages = 10_000
	way := model.Delay{Min: 100 * time.Millisecond, Max: 100 * time.Millisecond}
	virtuallyOn(t, model.Config{Up: way, Down: way}, jetstream.ConsumerConfig{MaxAckPending: -1}, func(t *testing.T, w *world) {
		w.publish("s.a", messages)
		before := w.now()
		run := consume(t, w.sub, nothing)
		w.settled()
		require.LessOrEqual(t, w.now()-before, 8*time.Second)
		run.end(t)
	})
}
