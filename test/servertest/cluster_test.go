package servertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jetpull/jetpull/internal/natstest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// takesPulls waits until the consumer's leader takes pulls from nc: other servers
// know who leads before they know that, and answer 503. A pull that cannot be read
// changes nothing.
func takesPulls(t *testing.T, nc *nats.Conn) {
	t.Helper()
	require.NoError(t, eventually(clusterTimeout, func() error {
		msg, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.S.C", []byte("{"), time.Second)
		if err == nil && msg.Header.Get("Status") != "400" {
			err = fmt.Errorf("answered with %v", msg.Header)
		}
		return err
	}))
}

func TestCluster(t *testing.T) {
	c := RunCluster(t)
	nc := c.Connect(t)
	js := natstest.JetStream(t, nc)
	natstest.StreamWith(t, js, jetstream.StreamConfig{Name: "S", Replicas: 3})
	cons := natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "C"})
	c.WaitReady(t, "S", "C")
	require.Equal(t, -1, c.StreamLeader("other"))

	natstest.Publish(t, js, "S.a", 20)
	seq := 0
	take := func(n int) {
		t.Helper()
		takesPulls(t, nc)
		for range n {
			msg, err := cons.Next(jetstream.FetchMaxWait(waitTimeout))
			require.NoError(t, err)
			seq++
			meta, err := msg.Metadata()
			require.NoError(t, err)
			require.EqualValues(t, seq, meta.Sequence.Stream)
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			require.NoError(t, msg.DoubleAck(ctx))
			cancel()
		}
	}
	take(5)

	before := c.ConsumerLeader("S", "C")
	after := c.StepDownConsumer(t, "S", "C")
	require.NotEqual(t, before, after)
	c.WaitReady(t, "S", "C")
	take(5)

	before = c.StreamLeader("S")
	require.NotEqual(t, before, c.StepDownStream(t, "S"))
	c.WaitReady(t, "S", "C")
	take(5)

	leader := c.ConsumerLeader("S", "C")
	c.StopServer(leader)
	require.NoError(t, eventually(clusterTimeout, func() error {
		if now := c.ConsumerLeader("S", "C"); now < 0 || now == leader {
			return errors.New("no new leader of the consumer")
		}
		return nil
	}))
	// The meta leader may have been on the server that was stopped.
	c.waitMembers(t)
	require.NoError(t, eventually(clusterTimeout, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := cons.Info(ctx)
		return err
	}))
	take(4)

	c.StartServer(t, leader)
	c.WaitReady(t, "S", "C")
	take(1)
}
