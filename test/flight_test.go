package test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/wire"
)

// ledger knows which messages of consumer "C" are settled: it hears every
// acknowledgement that has reached the server.
type ledger struct {
	nc  *nats.Conn
	sub *nats.Subscription
	in  map[uint64]bool
	all bool   // ack policy all
	top uint64 // the highest that is settled
}

// keepLedger begins a ledger, on a connection that no fault concerns.
func keepLedger(t *testing.T, nc *nats.Conn, policy jetstream.AckPolicy) *ledger {
	t.Helper()
	sub, err := nc.SubscribeSync("$JS.ACK.>")
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(-1, -1))
	require.NoError(t, nc.FlushTimeout(patience))
	return &ledger{nc: nc, sub: sub, in: map[uint64]bool{}, all: policy == jetstream.AckAllPolicy}
}

// settled reads what the server had up to now.
func (l *ledger) settled(t *testing.T) func(seq uint64) bool {
	t.Helper()
	require.NoError(t, l.nc.FlushTimeout(patience))
	n, _, err := l.sub.Pending()
	require.NoError(t, err)
	for range n {
		m, err := l.sub.NextMsg(patience)
		require.NoError(t, err)
		a, ok := wire.ParseAck(m.Subject)
		if !ok || a.Stream != "S" || a.Consumer != "C" {
			continue
		}
		switch verb, _, _ := strings.Cut(string(m.Data), " "); verb {
		case "", "+ACK", "+NXT", "+TERM":
			l.in[a.StreamSeq] = true
			l.top = max(l.top, a.StreamSeq)
		}
	}
	return func(seq uint64) bool { return l.in[seq] || l.all && seq <= l.top }
}

// inFlight is what the server has delivered, or a handler had, and is not certain
// to be settled: above the ack floor, and not in the ledger, if there is one.
func (c *checker) inFlight(t *testing.T, js jetstream.JetStream, book *ledger) (seqs []uint64) {
	t.Helper()
	var info *jetstream.ConsumerInfo
	consumerHas(t, js, "S", "C", func(i *jetstream.ConsumerInfo) bool { info = i; return true }, "info")
	settled := func(uint64) bool { return false }
	if book != nil {
		settled = book.settled(t)
	}
	for seq := info.AckFloor.Stream + 1; seq <= max(info.Delivered.Stream, c.Highest()); seq++ {
		if !settled(seq) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// cutOff takes the client behind a proxy away from the server, notes what was in
// flight, and lets the client back. js is not behind the proxy.
func (c *checker) cutOff(t *testing.T, proxy *natstest.Proxy, js jetstream.JetStream, book *ledger) {
	t.Helper()
	proxy.Refuse(true)
	proxy.Cut()
	c.Fault(c.inFlight(t, js, book))
	proxy.Refuse(false)
}

// secondOfLooks is how many looks at a consumer, one each tick and answered each, a
// second has at most. On a busy machine it has fewer, and the test more time.
const secondOfLooks = int(time.Second / look)

// pullsAgain waits until the leader that consumer "C" has now has a pull, or has
// delivered. That may take a second from when it answers first and nc is connected.
func pullsAgain(t *testing.T, nc *nats.Conn, js jetstream.JetStream, after string) {
	t.Helper()
	var first *jetstream.ConsumerInfo
	looks := 0
	eventually(t, func() error {
		cons, err := lookUp(t, js, "S", "C")
		if err != nil {
			return err
		}
		info := cons.CachedInfo()
		if info.Cluster.Leader == "" {
			return errors.New("the consumer has no leader")
		}
		if first == nil || first.Cluster.Leader != info.Cluster.Leader {
			first, looks = info, 0
		}
		if !nc.IsConnected() {
			return fmt.Errorf("the connection is %v", nc.Status())
		}
		looks++
		if info.NumWaiting == 0 && info.Delivered.Consumer == first.Delivered.Consumer {
			return fmt.Errorf("%s leads, and has no pull after %d looks", info.Cluster.Leader, looks)
		}
		return nil
	}, "pulling again after %s", after)
	require.LessOrEqual(t, looks, secondOfLooks, "looks at the leader until it has a pull, after %s", after)
	t.Logf("%d looks after %s", looks, after)
}
