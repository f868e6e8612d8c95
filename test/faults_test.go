package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// The tests here run Consume over what breaks on real servers, with a checker that
// holds the history against what Consume promises.

// failing is a handler that takes a millisecond and fails each thirteenth message
// the first time.
func failing() func(*jetpull.Msg) error {
	var tries tally
	return func(m *jetpull.Msg) error {
		<-time.After(time.Millisecond)
		if m.Sequence()%13 == 0 && tries.add(fmt.Sprint(m.Sequence())) == 1 {
			return jetpull.Retry(5*time.Millisecond, errNoUse)
		}
		return nil
	}
}

// faults break the connection of a tap.
var faults = map[string]func(*tap){
	"cuts": func(w *tap) { w.proxy.Cut() },
	"outages": func(w *tap) {
		w.proxy.Refuse(true)
		w.proxy.Cut()
		w.proxy.Refuse(false)
	},
	"restarts": func(w *tap) { w.server.Restart() },
}

func TestConsumeOverFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
			c := newChecker()
			run := consume(t, w.sub, c.noting(failing()), jetpull.Concurrency(4), byKey)
			stopFeed := feed(t, w.js, 500)
			for range 12 {
				c.wait(t, c.count()+40, patience)
				fault(w)
			}
			total := stopFeed()
			c.wait(t, total, patience)
			w.ackPending(t, 0)
			run.end(t)
			c.check(t, total)
		})
	}
}

// callTogether runs eight callers of Next and Fetch until ctx ends and acknowledges what
// they are handed. None may time out before all of total are seen.
func callTogether(ctx context.Context, t *testing.T, sub *jetpull.Subscription, total int, wait time.Duration) (seen *tally,
	callers *sync.WaitGroup,
) {
	seen, callers = &tally{}, &sync.WaitGroup{}
	for i := range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				res := <-call(ctx, sub, i%3*8, jetpull.MaxWait(wait))
				for _, m := range res.msgs {
					seen.add(fmt.Sprint(m.Sequence()))
					_ = m.Ack() // one that gets lost, or finds the buffer of the connection full, is redelivered
				}
				if res.err != nil && ctx.Err() == nil && seen.len() < total {
					t.Errorf("with %d messages seen: %v", seen.len(), res.err)
					return
				}
			}
		})
	}
	return seen, callers
}

func TestNothingIsLostOverFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const total, times = 4000, 4
			w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			seen, callers := callTogether(ctx, t, w.sub, total, forever)
			natstest.Publish(t, w.js, "s.a", total)
			for i := range times {
				reaches(t, i*total/(2*times), "messages flow", seen.len)
				fault(w)
			}
			consumerHas(t, w.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == total }, "every message is acknowledged")
			stop()
			callers.Wait()
			require.Equal(t, total, seen.len(), "every message was handed over")
			require.Positive(t, w.sub.Stats().Reconnects)
		})
	}
}

// electing is how long a cluster in one busy process may be without a leader.
const electing = 60 * time.Second

// replicated is a cluster with a stream and a consumer of three replicas. The connection of the rig begins at one server.
func replicated(t *testing.T, cfg jetstream.ConsumerConfig) (*servertest.Cluster, *rig, *jetpull.Subscription) {
	t.Helper()
	cluster := servertest.RunCluster(t)
	nc := cluster.Connect(t, nats.DontRandomize())
	r := &rig{nc: nc, js: natstest.JetStream(t, cluster.Connect(t))}
	natstest.StreamWith(t, r.js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
	r.consumer(t, cfg)
	cluster.WaitReady(t, "S", "C")
	return cluster, r, subscribe(t, natstest.JetStream(t, nc), "S", "C")
}

// TestConsumeInACluster: the consumer's leader is taken away again and again, and each server once.
func TestConsumeInACluster(t *testing.T) {
	t.Parallel()
	stepDowns := 8
	if testing.Short() {
		stepDowns = 3
	}
	cluster, r, sub := replicated(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second, MaxAckPending: 50})
	c := newChecker()
	run := consume(t, sub, c.noting(failing()), jetpull.Concurrency(4), byKey)
	// A Consume remembers 1,000 settled messages. At this rate that is 20 s, longer than a busy cluster takes to deliver one again.
	stopFeed := feed(t, r.js, 50)
	for range stepDowns {
		c.wait(t, c.count()+10, electing)
		cluster.StepDownConsumer(t, "S", "C")
	}
	for i := range cluster.Servers {
		c.wait(t, c.count()+10, electing)
		cluster.StopServer(i)
		c.wait(t, c.count()+10, electing)
		cluster.StartServer(t, i)
		cluster.WaitReady(t, "S", "C")
	}
	total := stopFeed()
	c.wait(t, total, electing)
	run.end(t)
	c.check(t, total)
}

// A leader that steps down may take a pull with it, or what it was about to deliver. A
// call misses that long before its deadline: none times out while there are messages.
func TestCallsInACluster(t *testing.T) {
	t.Parallel()
	const stepDowns, burst = 8, 200
	const total = (stepDowns + 1) * burst
	cluster, r, sub := replicated(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen, callers := callTogether(ctx, t, sub, total, 5*time.Second)
	for range stepDowns {
		r.publish(t, burst)
		cluster.StepDownConsumer(t, "S", "C")
	}
	r.publish(t, burst)
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == total }, "every message is acknowledged")
	stop()
	callers.Wait()
	require.Equal(t, total, seen.len())
}
