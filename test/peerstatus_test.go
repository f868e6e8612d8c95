package test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here need answers that a real server cannot be made to give a client such
// as this one, so the scripted peer does it, in virtual time.

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

// TestScriptedPeerStatus: 412, because no pull names an API level; 408 Interest Expired,
// which goes to an inbox in another account that nobody listens on any more; and the
// frames of a server to come, which show if nothing better follows by the deadline.
func TestScriptedPeerStatus(t *testing.T) {
	for _, tc := range []struct {
		code        int
		description string
		is          []error
		least, most int32 // pulls
	}{
		{412, "Required Api Level", []error{jetpull.ErrBadRequest, jetstream.ErrBadRequest}, 1, 1},
		{408, "Interest Expired", []error{jetpull.ErrTimeout}, 2, 8},
		{409, "Gone Fishing", []error{jetpull.ErrTimeout, nats.ErrTimeout}, 2, 8},
		{418, "Gone Fishing", []error{jetpull.ErrTimeout, nats.ErrTimeout}, 2, 8},
		{599, "Gone Fishing", []error{jetpull.ErrTimeout, nats.ErrTimeout}, 2, 8},
	} {
		t.Run(fmt.Sprint(tc.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pulls atomic.Int32
				var over atomic.Bool
				sub, _ := scripted(t, jetstream.ConsumerConfig{}, func(p *natstest.Peer, pull natstest.Pull) {
					if over.Load() {
						p.Deliver(pull.Reply, firstMessage)
						return
					}
					pulls.Add(1)
					p.Status(pull.Reply, tc.code, tc.description, "Nats-Pending-Messages", "1", "Nats-Pending-Bytes", "0")
				})
				res := receive(t, call(t.Context(), sub, 0, jetpull.MaxWait(800*time.Millisecond)), "the end")
				requireIs(t, res.err, tc.is...)
				if tc.code != 408 {
					requireStatus(t, res.err, tc.code, tc.description)
				}
				require.GreaterOrEqual(t, pulls.Load(), tc.least)
				require.LessOrEqual(t, pulls.Load(), tc.most, "it backs off between tries")
				got := call(t.Context(), sub, 0, jetpull.MaxWait(forever))
				if tc.most > 1 {
					pass(time.Second)
					over.Store(true)
					requireBodies(t, served(t, got, "a message later"), "1")
				}
			})
		})
	}
}

// Servers before 2.11 take no_wait before expires, and end a one-shot at once. Callers
// share a plain long pull then, for one message each: each message that comes ends the
// wait of one of them, though the pull is not filled.
func TestScriptedPeerOldServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 12
		plain := make(chan natstest.Pull, 4*callers)
		sub, peer := scripted(t, jetstream.ConsumerConfig{}, func(p *natstest.Peer, pull natstest.Pull) {
			if pull.Req.NoWait {
				p.Status(pull.Reply, 404, "No Messages")
				return
			}
			plain <- pull
		})
		first := call(t.Context(), sub, 3, jetpull.MaxWait(forever), jetpull.Heartbeat(10*time.Minute))
		pull := receive(t, plain, "the plain pull of the first call")
		require.EqualValues(t, 3, sub.Stats().Pulls, "a look, a one-shot, and a plain long pull")
		peer.Deliver(pull.Reply, firstMessage)
		requireBodies(t, served(t, first, "its message"), "1")

		peer.Pause(true) // so that those that call meanwhile share the next pulls
		results := make(chan result, callers)
		for range callers {
			go func() {
				results <- <-call(t.Context(), sub, 3, jetpull.MaxWait(forever), jetpull.Heartbeat(10*time.Minute))
			}()
		}
		synctest.Wait()
		peer.Pause(false)
		var open []natstest.Pull
		for batch := 0; batch < callers; batch += open[len(open)-1].Req.Batch {
			open = append(open, receive(t, plain, "plain pulls for all callers"))
		}
		require.Less(t, len(open), callers, "pulls are shared")
		for range callers {
			for !peer.Deliver(open[0].Reply, firstMessage) {
				open = open[1:]
			}
			res := receive(t, results, "a message is not kept back")
			require.NoError(t, res.err)
			requireBodies(t, res.msgs, "1")
			if open[0].Req.Batch--; open[0].Req.Batch == 0 {
				open = open[1:]
			}
		}
	})
}
