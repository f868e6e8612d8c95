package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here run Consume all day long over what breaks, with a checker
// that holds the history against what Consume promises.

var byKey = jetpull.OrderedBy((*jetpull.Msg).Subject)

func TestConsumeOverServerRestarts(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second, MaxAckPending: -1})
	c := newChecker()
	run := consume(t, w.sub, c.handler(time.Millisecond), jetpull.Concurrency(4), byKey)
	f := feed(t, w.js, 400)
	for i := range 5 {
		n := c.count()
		c.wait(t, n+100, patience)
		w.server.Stop()
		w.proxy.Refuse(true)
		w.proxy.Cut()
		w.server.Start()
		// What is unsettled in the store is what can come again.
		c.Fault(c.inFlight(t, w.js, nil))
		w.proxy.Refuse(false)
		back := time.Now()
		n = c.count()
		c.wait(t, n+1, patience)
		require.Less(t, time.Since(back), time.Second+reconnecting, "restart %d: pulling again", i+1)
	}
	total := f.end(t)
	c.wait(t, total, patience)
	w.ackPending(t, 0)
	run.end(t)
	c.check(t, total)
}

// reconnecting is what the connection itself may take to come back on a busy
// machine, beyond the second that Consume has.
const reconnecting = time.Second

func TestConsumeOverFiftyCuts(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
	book := keepLedger(t, w.nc, jetstream.AckExplicitPolicy)
	c := newChecker()
	run := consume(t, w.sub, c.handler(time.Millisecond), jetpull.Concurrency(4), byKey)
	f := feed(t, w.js, 500)
	for range 50 {
		n := c.count()
		c.wait(t, n+20, patience)
		c.cutOff(t, w.proxy, w.js, book)
	}
	total := f.end(t)
	c.wait(t, total, patience)
	w.ackPending(t, 0)
	run.end(t)
	c.check(t, total)
}

// TestConsumeOverABlackHole: for five seconds all bytes vanish, in both
// directions, and nobody is told.
func TestConsumeOverABlackHole(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: 7 * time.Second, MaxAckPending: -1})
	book := keepLedger(t, w.nc, jetstream.AckExplicitPolicy)
	c := newChecker()
	run := consume(t, w.sub, c.handler(time.Millisecond), jetpull.Concurrency(4), byKey)
	f := feed(t, w.js, 300)
	c.wait(t, 200, patience)
	w.proxy.BlackHole(true)
	<-time.After(5 * time.Second)
	c.Fault(c.inFlight(t, w.js, book))
	w.proxy.BlackHole(false)
	back := time.Now()
	n := c.count()
	c.wait(t, n+1, patience)
	require.Less(t, time.Since(back), time.Second+reconnecting)
	total := f.end(t)
	c.wait(t, total, patience)
	w.ackPending(t, 0)
	run.end(t)
	c.check(t, total)
}

// TestConsumeOverALongWay: 100 ms each way. Windows have to grow, or the
// messages would come at the pace of round trips.
func TestConsumeOverALongWay(t *testing.T) {
	t.Parallel()
	const messages = 10_000
	w := newTap(t, jetstream.ConsumerConfig{AckWait: 30 * time.Second, MaxAckPending: -1})
	w.publish(t, messages)
	w.proxy.Delay(100 * time.Millisecond)
	c := newChecker()
	start := time.Now()
	run := consume(t, w.sub, c.handler(0))
	c.wait(t, messages, patience)
	require.Less(t, time.Since(start), 8*time.Second, "%d messages over a round trip of 200 ms", messages)
	w.ackPending(t, 0)
	run.end(t)
	c.check(t, messages)
}

func TestConsumeOnAConnectionThatIsDrained(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1})
	w.publish(t, 500)
	book := keepLedger(t, w.nc, jetstream.AckExplicitPolicy)
	nc := connect(t, w.server.URL())
	other := subscribe(t, natstest.JetStream(t, nc), "S", "C")
	c := newChecker()
	run := consume(t, other, c.handler(5*time.Millisecond))
	c.wait(t, 20, patience)
	drained := time.Now()
	require.NoError(t, nc.Drain())
	err := receive(t, run.done, "end of Consume")
	require.ErrorIs(t, err, jetpull.ErrClosed)
	c.Fault(c.inFlight(t, w.js, book))
	rest := consume(t, w.sub, c.handler(0))
	c.wait(t, 500, patience)
	require.Less(t, time.Since(drained), handBackWithin, "what was read ahead is there for others")
	eventually(t, func() error {
		if !nc.IsClosed() {
			return fmt.Errorf("connection is %v", nc.Status())
		}
		return nil
	}, "the connection closes")
	rest.end(t)
	c.check(t, 500)
	require.LessOrEqual(t, c.Again(), 1, "its handler may have acknowledged when the connection was gone")
}

// TestConsumeSlowHandler: 300 messages of 20 ms with an AckWait of a second.
func TestConsumeSlowHandler(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]jetpull.Option{"defaults": nil, "four at a time": {jetpull.Concurrency(4)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const messages = 300
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Second})
			r.publish(t, messages)
			var calls tally
			run := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error {
				calls.add(string(m.Data()))
				<-time.After(20 * time.Millisecond)
				return nil
			}, opts...)
			consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == messages }, "all are acknowledged")
			run.end(t)
			require.Equal(t, messages, calls.len())
			require.EqualValues(t, messages, sub.Stats().Acks, "exactly one handler call a message")
			require.Zero(t, sub.Stats().Redelivered)
		})
	}
}

// TestConsumeInACluster: the consumer's leader is taken away twenty times, and
// each server once.
func TestConsumeInACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers and 23 elections take half a minute")
	}
	const maxAckPending = 50
	cluster := natstest.RunCluster(t)
	nc, pub := cluster.Connect(t, nats.DontRandomize()), cluster.Connect(t)
	r := &rig{nc: pub, js: natstest.JetStream(t, pub)}
	natstest.StreamWith(t, r.js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
	r.consumer(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second, MaxAckPending: maxAckPending})
	cluster.WaitReady(t, "S", "C")
	sub := subscribe(t, natstest.JetStream(t, nc), "S", "C")
	c := newChecker()
	run := consume(t, sub, c.handler(time.Millisecond), jetpull.Concurrency(4), byKey)
	f := feed(t, r.js, 200)
	for i := range 20 {
		n := c.count()
		c.wait(t, n+5, electing)
		cluster.StepDownConsumer(t, "S", "C")
		pullsAgain(t, nc, r.js, fmt.Sprintf("step-down %d", i+1))
		c.Fault(c.inFlight(t, r.js, nil))
	}
	for i := range cluster.Servers {
		n := c.count()
		c.wait(t, n+5, electing)
		cluster.StopServer(i)
		pullsAgain(t, nc, r.js, fmt.Sprintf("the stop of server %d", i+1))
		c.Fault(c.inFlight(t, r.js, nil))
		n = c.count()
		c.wait(t, n+5, electing)
		cluster.StartServer(t, i)
		cluster.WaitReady(t, "S", "C")
	}
	total := f.end(t)
	c.wait(t, total, electing)
	run.end(t)
	c.check(t, total)
}

// electing is how long a cluster in one busy process may be without a leader.
const electing = 30 * time.Second
