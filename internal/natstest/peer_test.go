package natstest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func hasOp(verb, subject string) func([]Op) bool {
	return func(ops []Op) bool {
		return slices.ContainsFunc(ops, func(op Op) bool { return op.Verb == verb && op.Subject == subject })
	}
}

// next receives a message with a virtual timeout. It does not use Subscription.NextMsg, whose pool of timers outlives a bubble.
func next(t *testing.T, ch <-chan *nats.Msg) *nats.Msg {
	t.Helper()
	select {
	case m := <-ch:
		return m
	case <-time.After(waitTimeout):
		t.Fatal("no message")
		return nil
	}
}

func subscribe(t *testing.T, nc *nats.Conn, subject string) (*nats.Subscription, <-chan *nats.Msg) {
	t.Helper()
	ch := make(chan *nats.Msg, 1000)
	sub, err := nc.ChanSubscribe(subject, ch)
	require.NoError(t, err)
	return sub, ch
}

func TestPeerServesAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPeer(t)
		p.OnRequest("$JS.API.CONSUMER.INFO.S.C", func(p *Peer, r Request) {
			p.ReplyJSON(r.Reply, jetstream.ConsumerInfo{Stream: "S", Name: "C"})
		})
		var pulls []Pull
		var acks []Ack
		deliver := func(p *Peer, pull Pull) {
			pulls = append(pulls, pull)
			seq := uint64(len(pulls))
			p.Deliver(pull.Reply, Data{
				Subject: "S.a", Body: []byte("body"), Header: nats.Header{"K": {"v"}},
				AckReply: AckReply("S", "C", 1, seq, seq, time.Now(), 0),
			})
			p.Status(pull.Reply, 408, "Request Timeout", "Nats-Pending-Messages", "4", "Nats-Pending-Bytes", "0")
		}
		p.OnPull(deliver)
		p.OnAck(func(_ *Peer, ack Ack) { acks = append(acks, ack) })

		nc := p.Connect(t)
		js := JetStream(t, nc)
		c, err := js.Consumer(t.Context(), "S", "C")
		require.NoError(t, err)
		batch, err := c.Fetch(5, jetstream.FetchMaxWait(time.Minute))
		require.NoError(t, err)
		var got []jetstream.Msg
		for m := range batch.Messages() {
			got = append(got, m)
		}
		require.Len(t, got, 1)
		require.Equal(t, "S.a", got[0].Subject(), "the frame has the message's subject, not the inbox")
		require.Equal(t, "v", got[0].Headers().Get("K"))
		require.Equal(t, 5, pulls[0].Req.Batch)
		require.Equal(t, time.Minute, pulls[0].Req.Expires)
		require.NoError(t, pulls[0].Err)

		require.NoError(t, got[0].DoubleAck(t.Context()), "double acks are confirmed")
		require.Len(t, acks, 1)
		require.EqualValues(t, 1, acks[0].StreamSeq)
		require.Equal(t, "C", acks[0].Consumer)

		_, inbox := subscribe(t, nc, "inbox")
		require.NoError(t, nc.Publish("$JS.ACK._.hash.S.C.1.2.3.1700000000000000000.0", nil))
		require.NoError(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", "inbox", []byte(`{"batch":2,"no_wait":true}`)))
		require.Equal(t, "S.a", next(t, inbox).Subject)
		require.Equal(t, "408", next(t, inbox).Header.Get("Status"))
		require.Equal(t, PullRequest{Batch: 2, NoWait: true}, pulls[1].Req)
		require.EqualValues(t, 3, acks[1].DeliverSeq)

		p.ConfirmAcks(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = nc.RequestWithContext(ctx, AckReply("S", "C", 1, 9, 9, time.Now(), 0), []byte("+ACK"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestPeerCountsEveryFrameForUnsub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPeer(t)
		nc := p.Connect(t)
		sub, got := subscribe(t, nc, "in.box")
		require.NoError(t, sub.AutoUnsubscribe(3))
		p.Wait(func(ops []Op) bool { return len(ops) > 0 && ops[len(ops)-1].Max == 3 })
		require.True(t, p.HasInterest("in.box"))
		require.True(t, p.Status("in.box", 100, "Idle Heartbeat"))
		require.True(t, p.Deliver("in.box", Data{Subject: "a"}))
		require.True(t, p.NoResponders("in.box"))
		require.False(t, p.HasInterest("in.box"))
		require.False(t, p.Deliver("in.box", Data{Subject: "b"}), "a frame nobody takes is dropped")
		require.Equal(t, "Idle Heartbeat", next(t, got).Header.Get("Description"))
		require.Equal(t, "a", next(t, got).Subject)
		require.Equal(t, "503", next(t, got).Header.Get("Status"))
	})
}

func TestPeerEndsASubscriptionThatIsAlreadyPastItsMax(t *testing.T) {
	// Use the protocol directly: nats.go sends no UNSUB with a max that it has already reached.
	synctest.Test(t, func(t *testing.T) {
		p := NewPeer(t)
		conn, err := p.InProcessConn()
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		_, err = io.WriteString(conn, "CONNECT {}\r\nSUB late 1\r\n")
		require.NoError(t, err)
		p.Wait(hasOp("SUB", "late"))
		p.Deliver("late", Data{Subject: "a"})
		p.Deliver("late", Data{Subject: "b"})
		require.True(t, p.HasInterest("late"))
		_, err = io.WriteString(conn, "UNSUB 1 2\r\n")
		require.NoError(t, err)
		p.Wait(hasOp("UNSUB", ""))
		require.False(t, p.HasInterest("late"))
	})
}

func TestPeerIsQuietAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPeer(t)
		nc := p.Connect(t, nats.NoReconnect())
		subscribe(t, nc, "a")
		p.Wait(hasOp("SUB", "a"))
		p.Pause(true)
		p.Deliver("a", Data{Subject: "a"})
		p.Close()
		require.False(t, p.HasInterest("a"))
		_, err := p.InProcessConn()
		require.Error(t, err)
		p.Close()
		// The bubble fails if any goroutine of the peer is left.
	})
}

func TestPeerLatencyKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPeer(t)
		p.Latency(func(conn int) (up, down func() time.Duration) {
			rng := rand.New(rand.NewPCG(1, uint64(conn)))
			return func() time.Duration { return time.Duration(rng.Int64N(int64(40 * time.Millisecond))) },
				func() time.Duration { return 100 * time.Millisecond }
		})
		nc := p.Connect(t)
		_, got := subscribe(t, nc, "a")
		p.Wait(hasOp("SUB", "a"))
		start := time.Now()
		for i := range 100 {
			require.NoError(t, nc.Publish("a", fmt.Append(nil, i)))
		}
		for i := range 100 {
			require.Equal(t, fmt.Sprint(i), string(next(t, got).Data))
		}
		took := time.Since(start)
		require.Greater(t, took, 100*time.Millisecond)
		require.Less(t, took, 141*time.Millisecond)
		p.Latency(nil)
		start = time.Now()
		require.NoError(t, p.Connect(t).Publish("b", nil))
		p.Wait(hasOp("PUB", "b"))
		require.Equal(t, start, time.Now())
	})
}

// A client that reconnects holds a mutex for which publishers wait. If the handshake took virtual time, the bubble would block forever.
func TestPeerHandshakeTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPeer(t)
		slow := func() time.Duration { return time.Second }
		p.Latency(func(int) (up, down func() time.Duration) { return slow, slow })
		p.OnRequest("slow", func(*Peer, Request) { time.Sleep(time.Minute) })
		start := time.Now()
		nc := p.Connect(t, nats.ReconnectWait(time.Second), nats.ReconnectJitter(0, 0))
		require.Equal(t, start, time.Now())
		for range 20 {
			require.NoError(t, nc.Publish("slow", nil))
			p.Cut()
			for range 100 {
				require.NoError(t, nc.Publish("fast", nil))
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
}

// A stalled link behind the clients' server holds the data of both sides, and changes of subscriptions for JetStream.
func TestPeerStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPeer(t)
		var pulled int
		p.OnPull(func(*Peer, Pull) { pulled++ })
		nc := p.Connect(t)
		sub, got := subscribe(t, nc, "in.box")
		p.Wait(hasOp("SUB", "in.box"))
		p.Stall(true)
		require.NoError(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", "in.box", nil))
		_, late := subscribe(t, nc, "late")
		require.True(t, p.Deliver("in.box", Data{Subject: "a"}))
		require.NoError(t, nc.Flush(), "the clients' server answers")
		require.False(t, p.HasInterest("late"))
		require.Zero(t, pulled+len(got)+len(late))
		p.Stall(false)
		require.Equal(t, "a", next(t, got).Subject)
		synctest.Wait()
		require.Equal(t, 1, pulled)
		require.True(t, p.Deliver("late", Data{Subject: "b"}))
		require.Equal(t, "b", next(t, late).Subject)
		p.Stall(true)
		require.NoError(t, sub.Unsubscribe())
		require.NoError(t, nc.Flush())
		require.True(t, p.Deliver("in.box", Data{Subject: "lost"}), "JetStream does not know")
		p.Stall(false)
		synctest.Wait()
		require.False(t, p.HasInterest("in.box"))
		require.Empty(t, got)
	})
}
