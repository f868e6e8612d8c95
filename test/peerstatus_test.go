package test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// These statuses cannot be provoked on a real server by a client such as this
// one, so the scripted peer sends them.

// firstMessage is a message as a server with acks of version 1 delivers it.
var firstMessage = natstest.Data{Subject: "s.a", AckReply: "$JS.ACK.S.C.1.1.1.1700000000000000000.0", Body: []byte("1")}

// scripted subscribes to a consumer of a scripted peer.
func scripted(t *testing.T, cfg jetstream.ConsumerConfig, onPull func(*natstest.Peer, natstest.Pull), opts ...jetpull.Option) (*jetpull.Subscription, *natstest.Peer) {
	t.Helper()
	peer := natstest.NewPeer(t)
	peer.SetConsumer("S", "C", cfg)
	peer.OnPull(onPull)
	return subscribe(t, natstest.JetStream(t, peer.Connect(t)), "S", "C", opts...), peer
}

// The pull names no API level, so a server has no reason to send it.
func TestScriptedPeerStatus412RequiredApiLevel(t *testing.T) {
	t.Parallel()
	sub, _ := scripted(t, jetstream.ConsumerConfig{}, func(p *natstest.Peer, pull natstest.Pull) {
		p.Status(pull.Reply, 412, "Required Api Level")
	})
	_, err := sub.Next(t.Context())
	requireStatus(t, err, 412, "Required Api Level", jetpull.ErrBadRequest, jetstream.ErrBadRequest)
	require.EqualValues(t, 1, sub.Stats().Pulls, "a refusal is not tried again")
}

// The server sends it to an inbox in another account that nobody listens on
// any more, so who gets it has listened again.
func TestScriptedPeerStatus408InterestExpired(t *testing.T) {
	t.Parallel()
	var pulls atomic.Int32
	sub, _ := scripted(t, jetstream.ConsumerConfig{}, func(p *natstest.Peer, pull natstest.Pull) {
		switch pulls.Add(1) {
		case 1:
			p.Status(pull.Reply, 404, "No Messages")
		case 2:
			p.Status(pull.Reply, 408, "Interest Expired", "Nats-Pending-Messages", "1", "Nats-Pending-Bytes", "0")
		case 3:
			p.Deliver(pull.Reply, firstMessage)
		}
	})
	m, err := sub.Next(t.Context(), jetpull.MaxWait(patience))
	require.NoError(t, err, "the call pulls again within its deadline")
	requireBodies(t, []*jetpull.Msg{m}, "1")
	require.EqualValues(t, 3, pulls.Load())
}

// A frame of a server to come ends the pull, and its text shows if nothing
// better follows until the deadline.
func TestScriptedPeerUnknownStatusIsRetried(t *testing.T) {
	t.Parallel()
	for _, code := range []int{409, 418, 599} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			var pulls atomic.Int32
			sub, _ := scripted(t, jetstream.ConsumerConfig{}, func(p *natstest.Peer, pull natstest.Pull) {
				pulls.Add(1)
				p.Status(pull.Reply, code, "Gone Fishing")
			})
			res := receive(t, call(t.Context(), sub, 0, jetpull.MaxWait(800*time.Millisecond)), "time-out")
			requireStatus(t, res.err, code, "Gone Fishing", jetpull.ErrTimeout, nats.ErrTimeout)
			require.Contains(t, res.err.Error(), "Gone Fishing")
			require.GreaterOrEqual(t, pulls.Load(), int32(2))
			require.LessOrEqual(t, pulls.Load(), int32(6), "it backs off between tries")
		})
	}
}

// Servers before 2.11 take no_wait before expires: a one-shot ends at once.
func TestScriptedPeerOldServerTakesNoWaitBeforeExpires(t *testing.T) {
	t.Parallel()
	var pulls, plain atomic.Int32
	sub, _ := scripted(t, jetstream.ConsumerConfig{}, func(p *natstest.Peer, pull natstest.Pull) {
		pulls.Add(1)
		if pull.Req.NoWait {
			p.Status(pull.Reply, 404, "No Messages")
			return
		}
		plain.Add(1)
		p.Deliver(pull.Reply, firstMessage)
	})
	m, err := sub.Next(t.Context(), jetpull.MaxWait(patience))
	require.NoError(t, err)
	requireBodies(t, []*jetpull.Msg{m}, "1")
	require.EqualValues(t, 1, plain.Load())
	require.EqualValues(t, 3, pulls.Load(), "a look, a one-shot, and a plain long pull")
}

// Callers share a plain pull, for one message each. Each message that comes
// ends the wait of one of them, though the pull is not filled.
func TestScriptedPeerOldServerServesCallersOneByOne(t *testing.T) {
	t.Parallel()
	const callers = 12
	plain := make(chan natstest.Pull, 2*callers)
	sub, peer := scripted(t, jetstream.ConsumerConfig{}, func(p *natstest.Peer, pull natstest.Pull) {
		if pull.Req.NoWait {
			p.Status(pull.Reply, 404, "No Messages")
			return
		}
		plain <- pull
	})
	_, err := sub.Fetch(t.Context(), 3, jetpull.MaxWait(time.Second))
	requireIs(t, err, jetpull.ErrTimeout)
	receive(t, plain, "the plain pull of the first call")

	// While looks go unanswered the callers that come share the next ones.
	peer.Pause(true)
	results := make(chan result, callers)
	for range callers {
		go func() { results <- <-call(t.Context(), sub, 3, jetpull.MaxWait(patience)) }()
	}
	peer.Pause(false)
	var open []natstest.Pull
	for batch := 0; batch < callers; {
		pull := receive(t, plain, "plain pulls for all callers")
		batch += pull.Req.Batch
		open = append(open, pull)
	}
	for _, pull := range open {
		require.True(t, peer.Deliver(pull.Reply, firstMessage))
		select {
		case res := <-results:
			require.NoError(t, res.err)
			requireBodies(t, res.msgs, "1")
		case <-time.After(5 * time.Second):
			t.Fatalf("a message is kept back; stats %+v", sub.Stats())
		}
	}
	t.Logf("%d callers shared %d pulls", callers, len(open))
	require.NoError(t, sub.Close(t.Context()))
}
