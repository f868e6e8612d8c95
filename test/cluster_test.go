package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// crew is a cluster with a replicated stream "S", and a connection to it.
type crew struct {
	*rig
	cluster *natstest.Cluster
}

// TestCluster runs against one cluster of three servers. Its parts come one
// after the other, since most of them take a leader away.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := natstest.RunCluster(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *crew)
	}{
		{"Fetch with MaxBytes returns all that was delivered", clusterMaxBytes},
		{"NoWait batch that is partly served", clusterPartBatch},
		{"409 Leadership Change is handled", clusterLeadership},
		{"step-downs under load", clusterStepDowns},
		{"a pin is lost with its leader", clusterPin},
		{"409 Server Shutdown of an R1 consumer is handled", clusterShutdownR1},
		{"the leader's server stops and comes back", clusterLeaderStops},
		{"503 without a quorum is handled", clusterNoQuorum},
	} {
		t.Run(part.name, func(t *testing.T) {
			nc := cluster.Connect(t)
			r := &rig{nc: nc, js: natstest.JetStream(t, nc)}
			natstest.StreamWith(t, r.js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
			t.Cleanup(func() {
				eventually(t, func() error {
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
					defer cancel()
					if err := r.js.DeleteStream(ctx, "S"); !errors.Is(err, jetstream.ErrStreamNotFound) {
						return err
					}
					return nil
				}, "the stream is deleted")
			})
			part.run(t, &crew{rig: r, cluster: cluster})
		})
	}
}

// subscribe makes the consumer and waits until all its replicas follow.
func (c *crew) subscribe(t *testing.T, cfg jetstream.ConsumerConfig, opts ...jetpull.Option) *jetpull.Subscription {
	t.Helper()
	c.consumer(t, cfg)
	if cfg.Replicas != 1 {
		c.ready(t, "C")
	}
	return subscribe(t, c.js, "S", "C", opts...)
}

// ready waits until the stream and the consumer have a leader that all their
// replicas follow; without a consumer, the stream alone.
func (c *crew) ready(t *testing.T, consumer string) {
	t.Helper()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		stream, err := c.js.Stream(ctx, "S")
		if err != nil {
			return err
		}
		groups := []*jetstream.ClusterInfo{stream.CachedInfo().Cluster}
		if consumer != "" {
			cons, err := stream.Consumer(ctx, consumer)
			if err != nil {
				return err
			}
			groups = append(groups, cons.CachedInfo().Cluster)
		}
		for _, group := range groups {
			if group == nil || group.Leader == "" {
				return errors.New("no leader")
			}
			for _, peer := range group.Replicas {
				if peer.Offline || !peer.Current {
					return fmt.Errorf("%s is offline (%t) or behind (%t)", peer.Name, peer.Offline, !peer.Current)
				}
			}
		}
		return nil
	}, "stream S and consumer %q are ready", consumer)
}

// On R3 the frame that ends a pull overtakes the messages it counts.
func clusterMaxBytes(t *testing.T, c *crew) {
	const calls = 50
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1})
	c.publish(t, 6*calls)
	c.pending(t, 6*calls)
	handed := uint64(0)
	for range calls {
		msgs, err := sub.Fetch(t.Context(), 5, jetpull.MaxBytes(1<<20))
		require.NoError(t, err)
		require.Len(t, msgs, 5)
		for _, m := range msgs {
			handed++
			require.Equal(t, handed, m.Sequence())
			require.EqualValues(t, 1, m.Delivered())
		}
		ackAll(t, msgs...)
	}
	info, err := sub.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, handed, info.Delivered.Consumer, "the server counts no delivery that no caller saw")
	require.Zero(t, sub.Stats().HandedBack)
	require.EqualValues(t, calls, sub.Stats().Statuses[409], "each call was ended by Batch Completed")
}

func clusterPartBatch(t *testing.T, c *crew) {
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	for i := range 20 {
		c.publish(t, 3)
		c.pending(t, 3)
		got := 0
		for got < 3 {
			res := receive(t, call(t.Context(), sub, 5, jetpull.NoWait()), "part of a batch")
			require.NoError(t, res.err, "round %d, %d of 3 messages", i, got)
			require.Less(t, res.took, 4*time.Second)
			got += len(res.msgs)
			ackAll(t, res.msgs...)
		}
		require.Equal(t, 3, got)
	}
	ends := sub.Stats().Statuses[404] + sub.Stats().Statuses[408]
	require.GreaterOrEqual(t, ends, uint64(20), "a status ended every batch: %v", sub.Stats().Statuses)
}

func clusterLeadership(t *testing.T, c *crew) {
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	next := call(t.Context(), sub, 0, jetpull.MaxWait(patience))
	fetch := call(t.Context(), sub, 3, jetpull.FillBatch(), jetpull.MaxWait(patience))
	beat := call(t.Context(), sub, 5, jetpull.MaxWait(patience), jetpull.Heartbeat(time.Second))
	c.waiting(t, 3)
	c.cluster.StepDownConsumer(t, "S", "C")
	eventually(t, func() error {
		if n := sub.Stats().Statuses[409]; n == 0 {
			return fmt.Errorf("statuses %v", sub.Stats().Statuses)
		}
		return nil
	}, "the new leader tells of itself")
	require.Empty(t, next)
	require.Empty(t, fetch)
	require.Empty(t, beat)
	// As many as the three calls can take at most, so that each gets its share
	// whatever the order of their new pulls.
	c.publish(t, 9)
	seen := map[uint64]bool{}
	for _, ch := range []<-chan result{next, fetch, beat} {
		res := receive(t, ch, "messages of the new leader")
		require.NoError(t, res.err)
		require.Less(t, res.took, 15*time.Second)
		for _, m := range res.msgs {
			require.False(t, seen[m.Sequence()])
			seen[m.Sequence()] = true
		}
		ackAll(t, res.msgs...)
	}

	// With nothing to deliver the deadline ends the call, and not the change.
	for len(seen) < 9 {
		msgs, err := sub.Fetch(t.Context(), 9)
		require.NoError(t, err)
		for _, m := range msgs {
			seen[m.Sequence()] = true
		}
		ackAll(t, msgs...)
	}
	last := call(t.Context(), sub, 0, jetpull.MaxWait(3*time.Second))
	c.waiting(t, 1)
	c.cluster.StepDownConsumer(t, "S", "C")
	res := receive(t, last, "time-out")
	requireIs(t, res.err, jetpull.ErrTimeout, nats.ErrTimeout)
	require.Greater(t, res.took, 2500*time.Millisecond)
}

func clusterStepDowns(t *testing.T, c *crew) {
	const callers, stepDowns, burst = 8, 3, 400
	total := (stepDowns + 1) * burst
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second, MaxAckPending: -1})
	var seen tally
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			for ctx.Err() == nil {
				res := <-call(ctx, sub, i%3*8, jetpull.MaxWait(patience))
				for _, m := range res.msgs {
					if seen.add(fmt.Sprint(m.Sequence())) > 1 && m.Delivered() < 2 {
						t.Errorf("message %d came again though it was delivered once", m.Sequence())
					}
					_ = m.Ack() // one that a leader loses comes again
				}
				if res.err != nil && ctx.Err() == nil {
					t.Errorf("with %d messages seen: %v", seen.len(), res.err)
					return
				}
			}
		})
	}
	for range stepDowns {
		c.publish(t, burst)
		c.cluster.StepDownConsumer(t, "S", "C")
	}
	c.publish(t, burst)
	consumerHas(t, c.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == uint64(total) }, "every message is acknowledged")
	stop()
	calling.Wait()
	require.Equal(t, total, seen.len())
}

func clusterPin(t *testing.T, c *crew) {
	var log pinLog
	sub := c.subscribe(t, pinnedConsumer(), log.options()...)
	c.publish(t, 1)
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	ackAll(t, m)
	first, held := sub.Pin()
	require.True(t, held)
	log.require(t, "pin A "+first)

	got := call(t.Context(), sub, 0, jetpull.MaxWait(patience))
	c.waiting(t, 1)
	c.cluster.StepDownConsumer(t, "S", "C")
	log.require(t, "pin A "+first, "unpin A "+first)
	c.publish(t, 1)
	res := receive(t, got, "message under the new pin")
	require.NoError(t, res.err)
	ackAll(t, res.msgs...)
	second, held := sub.Pin()
	require.True(t, held)
	require.NotEqual(t, first, second)
	log.require(t, "pin A "+first, "unpin A "+first, "pin A "+second)
}

func clusterShutdownR1(t *testing.T, c *crew) {
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, Replicas: 1})
	leader := c.cluster.ConsumerLeader("S", "C")
	require.GreaterOrEqual(t, leader, 0)
	got := call(t.Context(), sub, 5, jetpull.MaxWait(3*patience))
	c.waiting(t, 1)
	c.cluster.StopServer(leader)
	eventually(t, func() error {
		// A client of that very server may lose its connection before the word
		// reaches it.
		if s := sub.Stats(); s.Statuses[409] == 0 && s.Reconnects == 0 {
			return fmt.Errorf("statuses %v", s.Statuses)
		}
		return nil
	}, "the pull is told of the shutdown")
	require.Empty(t, got)
	c.cluster.StartServer(t, leader)
	c.ready(t, "")
	c.publish(t, 1)
	res := receive(t, got, "message after the restart")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
	ackAll(t, res.msgs...)
}

func clusterLeaderStops(t *testing.T, c *crew) {
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	next, fetch := call(t.Context(), sub, 0, jetpull.MaxWait(3*patience)), call(t.Context(), sub, 5, jetpull.MaxWait(3*patience))
	c.waiting(t, 2)
	leader := c.cluster.ConsumerLeader("S", "C")
	c.cluster.StopServer(leader)
	eventually(t, func() error {
		if now := c.cluster.ConsumerLeader("S", "C"); now < 0 || now == leader {
			return fmt.Errorf("leader %d", now)
		}
		return nil
	}, "another member leads")
	// Either call may get the first message; the other gets the second.
	for waiting := 2; waiting > 0; waiting-- {
		c.publishAway(t, "s.a")
		var res result
		select {
		case res = <-next:
		case res = <-fetch:
		case <-time.After(patience):
			t.Fatalf("no message of the new leader within %s; stats %+v", patience, sub.Stats())
		}
		require.NoError(t, res.err)
		ackAll(t, res.msgs...)
	}
	c.cluster.StartServer(t, leader)
	c.ready(t, "C")
}

// publishAway publishes while a member is away and another may be elected. The
// server drops a second copy of one that it has after all.
func (c *crew) publishAway(t *testing.T, subject string) {
	t.Helper()
	id := nats.NewInbox()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := c.js.Publish(ctx, subject, []byte("1"), jetstream.WithMsgID(id))
		return err
	}, "publish on %s", subject)
}

func clusterNoQuorum(t *testing.T, c *crew) {
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	c.publish(t, 1)
	leader := c.cluster.ConsumerLeader("S", "C")
	var stopped []int
	for i := range c.cluster.Servers {
		if i != leader {
			c.cluster.StopServer(i)
			stopped = append(stopped, i)
		}
	}
	eventually(t, func() error {
		if c.cluster.ConsumerLeader("S", "C") >= 0 {
			return fmt.Errorf("the last member still leads")
		}
		// It takes pulls for a moment longer, and does nothing about them. One that
		// cannot be read is answered by whoever takes it.
		if _, err := c.nc.Request(nextSubject, []byte("{"), time.Second); !errors.Is(err, nats.ErrNoResponders) {
			return errors.Join(errors.New("pulls are not answered 503 yet"), err)
		}
		return nil
	}, "the last member steps down")
	res := receive(t, call(t.Context(), sub, 0, jetpull.MaxWait(1500*time.Millisecond)), "time-out")
	requireStatus(t, res.err, 503, "", jetpull.ErrTimeout, jetpull.ErrNoResponders, nats.ErrNoResponders)
	require.NotErrorIs(t, res.err, jetpull.ErrConsumerDeleted)

	got := call(t.Context(), sub, 5, jetpull.MaxWait(3*patience))
	for _, i := range stopped {
		c.cluster.Servers[i].Start()
	}
	c.ready(t, "C")
	res = receive(t, got, "message when there is a quorum again")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
	ackAll(t, res.msgs...)
}
