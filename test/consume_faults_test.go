package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
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

func TestConsumeOverServerRestarts(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
	c := newChecker()
	run := consume(t, w.sub, c.noting(failing()), jetpull.Concurrency(4), byKey)
	f := feed(t, w.js, 400)
	for range 4 {
		c.wait(t, c.count()+100, patience)
		w.server.Stop()
		w.proxy.Refuse(true)
		w.proxy.Cut()
		w.server.Start()
		w.proxy.Refuse(false)
	}
	total := f.end(t)
	c.wait(t, total, patience)
	w.ackPending(t, 0)
	run.end(t)
	c.check(t, total)
}

func TestConsumeOverFiftyCuts(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
	c := newChecker()
	run := consume(t, w.sub, c.noting(failing()), jetpull.Concurrency(4), byKey)
	f := feed(t, w.js, 500)
	for range 50 {
		c.wait(t, c.count()+20, patience)
		w.proxy.Refuse(true)
		w.proxy.Cut()
		w.proxy.Refuse(false)
	}
	total := f.end(t)
	c.wait(t, total, patience)
	w.ackPending(t, 0)
	run.end(t)
	c.check(t, total)
}

func TestConsumeOnAConnectionThatIsDrained(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: forever, MaxAckPending: -1})
	w.publish(t, 500)
	nc := connect(t, w.server.URL())
	other := subscribe(t, natstest.JetStream(t, nc), "S", "C")
	c := newChecker()
	run := consume(t, other, c.handler(5*time.Millisecond))
	c.wait(t, 20, patience)
	require.NoError(t, nc.Drain())
	require.ErrorIs(t, receive(t, run.done, "end of Consume"), jetpull.ErrClosed)
	c.Fault(c.inFlight(t, w.js))
	rest := consume(t, w.sub, c.handler(0))
	c.wait(t, 500, patience) // what was read ahead is there for others, and not after AckWait
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

// electing is how long a cluster in one busy process may be without a leader.
const electing = 60 * time.Second

// TestConsumeInACluster: the consumer's leader is taken away again and again, and
// each server once.
func TestConsumeInACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers and eleven elections take some ten seconds")
	}
	cluster := natstest.RunCluster(t)
	nc, pub := cluster.Connect(t, nats.DontRandomize()), cluster.Connect(t)
	r := &rig{nc: pub, js: natstest.JetStream(t, pub)}
	natstest.StreamWith(t, r.js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
	r.consumer(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second, MaxAckPending: 50})
	cluster.WaitReady(t, "S", "C")
	sub := subscribe(t, natstest.JetStream(t, nc), "S", "C")
	c := newChecker()
	run := consume(t, sub, c.noting(failing()), jetpull.Concurrency(4), byKey)
	f := feed(t, r.js, 200)
	for range 8 {
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
	total := f.end(t)
	c.wait(t, total, electing)
	run.end(t)
	c.check(t, total)
}
