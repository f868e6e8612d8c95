package test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// crew is a cluster with a replicated stream "S", and a connection to it.
type crew struct {
	*rig
	cluster *servertest.Cluster
}

// TestCluster runs against clusters of three servers. The parts of a cluster come one
// after the other, since most of them take a leader away.
func TestCluster(t *testing.T) {
	t.Parallel()
	type part struct {
		name string
		run  func(*testing.T, *crew)
	}
	for name, parts := range map[string][]part{
		"step-downs": {
			{"Fetch with MaxBytes returns all that was delivered", clusterMaxBytes},
			{"409 Leadership Change is handled", clusterLeadership},
			{"under load", clusterStepDowns},
			{"a pin is lost with its leader", clusterPin},
		},
		"stops": {
			{"409 Server Shutdown of an R1 consumer is handled", clusterShutdownR1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := servertest.RunCluster(t)
			for _, p := range parts {
				t.Run(p.name, func(t *testing.T) {
					nc := cluster.Connect(t)
					r := &rig{nc: nc, js: natstest.JetStream(t, nc)}
					eventually(t, func() error { // servers may still be removing the files of the part before
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						defer cancel()
						if err := r.js.DeleteStream(ctx, "S"); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
							return err
						}
						_, err := r.js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
						return err
					}, "a new stream")
					p.run(t, &crew{rig: r, cluster: cluster})
				})
			}
		})
	}
}

// subscribe makes the consumer and waits until all its replicas follow.
func (c *crew) subscribe(t *testing.T, cfg jetstream.ConsumerConfig, opts ...jetpull.Option) *jetpull.Subscription {
	t.Helper()
	c.consumer(t, cfg)
	if cfg.Replicas != 1 {
		c.cluster.WaitReady(t, "S", "C")
	}
	return subscribe(t, c.js, "S", "C", opts...)
}

// On R3 the frame that ends a pull overtakes the messages it counts. A call whose pull the server answers late, or whose
// leader has gone, pulls again, and what the first pull brought is redelivered later: then all calls begin anew.
func clusterMaxBytes(t *testing.T, c *crew) {
	const calls = 50
	c.publish(t, 6*calls)
	for range 5 {
		if c.fetchesWithMaxBytes(t, calls) {
			return
		}
		require.NoError(t, c.js.DeleteConsumer(t.Context(), "S", "C"))
	}
	require.Fail(t, "in each of five runs a call has pulled again")
}

// fetchesWithMaxBytes reports whether each call has sent one pull.
func (c *crew) fetchesWithMaxBytes(t *testing.T, calls int) bool {
	t.Helper()
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1})
	c.pending(t, 6*uint64(calls))
	handed := uint64(0)
	for call := range calls {
		msgs := fetch(t, sub, 5, jetpull.MaxBytes(1<<20))
		if sub.Stats().Pulls > uint64(call)+1 {
			return false
		}
		require.Len(t, msgs, 5)
		for _, m := range msgs {
			handed++
			require.Equal(t, handed, m.Sequence())
			require.EqualValues(t, 1, m.Delivered())
		}
		ackAll(t, msgs...)
	}
	require.Equal(t, handed, c.delivered(t), "the server counts no delivery that no caller saw")
	require.Zero(t, sub.Stats().HandedBack)
	require.EqualValues(t, calls, sub.Stats().Statuses[409], "each call was ended by Batch Completed")
	return true
}

func clusterLeadership(t *testing.T, c *crew) {
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	calls := []<-chan result{
		call(t.Context(), sub, 0, jetpull.MaxWait(forever)),
		call(t.Context(), sub, 3, jetpull.FillBatch(), jetpull.MaxWait(forever)),
		call(t.Context(), sub, 5, jetpull.MaxWait(forever), jetpull.Heartbeat(time.Second)),
	}
	c.waiting(t, 3)
	c.cluster.StepDownConsumer(t, "S", "C")
	statsBecome(t, sub, "the new leader tells of itself", func(s jetpull.Stats) bool { return s.Statuses[409] > 0 })
	for _, ch := range calls {
		require.Empty(t, ch)
	}
	c.publish(t, 9) // as many as the three calls can take at most, whatever the order of their pulls
	var h history
	for _, ch := range calls {
		h.note(t, served(t, ch, "messages of the new leader")...)
	}
	for h.seen.len() < 9 {
		h.note(t, fetch(t, sub, 9)...)
	}
}

// A leader that steps down may take a pull with it, or what it was about to deliver. A
// call misses that long before its deadline: none times out while there are messages.
func clusterStepDowns(t *testing.T, c *crew) {
	const stepDowns, burst = 8, 200
	const total = (stepDowns + 1) * burst
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen, callers := callTogether(ctx, t, sub, total, 5*time.Second)
	for range stepDowns {
		c.publish(t, burst)
		c.cluster.StepDownConsumer(t, "S", "C")
	}
	c.publish(t, burst)
	consumerHas(t, c.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == total }, "every message is acknowledged")
	stop()
	callers.Wait()
	require.Equal(t, total, seen.len())
}

func clusterPin(t *testing.T, c *crew) {
	var log pinLog
	sub := c.subscribe(t, pinnedConsumer(), log.options()...)
	c.publish(t, 1)
	ackAll(t, next(t, sub))
	first, _ := sub.Pin()
	log.require(t, "pin A "+first)
	got := call(t.Context(), sub, 0, jetpull.MaxWait(forever))
	c.waiting(t, 1)
	c.cluster.StepDownConsumer(t, "S", "C")
	log.require(t, "pin A "+first, "unpin A "+first)
	c.publish(t, 1)
	ackAll(t, served(t, got, "message under the new pin")...)
	second, _ := sub.Pin()
	require.NotEqual(t, first, second)
	log.require(t, "pin A "+first, "unpin A "+first, "pin A "+second)
}

func clusterShutdownR1(t *testing.T, c *crew) {
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, Replicas: 1})
	leader := c.cluster.ConsumerLeader("S", "C")
	require.GreaterOrEqual(t, leader, 0)
	got := call(t.Context(), sub, 5, jetpull.MaxWait(forever))
	c.waiting(t, 1)
	c.cluster.StopServer(leader)
	// A client of that very server may lose its connection before the word reaches it.
	statsBecome(t, sub, "the pull is ended by the shutdown", func(s jetpull.Stats) bool { return s.Statuses[409]+s.Reconnects > 0 })
	require.Empty(t, got)
	c.cluster.StartServer(t, leader)
	c.cluster.WaitReady(t, "S", "") // that of the consumer is not to be had from all members
	c.publish(t, 1)
	requireBodies(t, served(t, got, "message after the restart"), "1")
}
