package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here break the connection or the server under a call.

func TestCallsOutliveACut(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	next, fetch := call(t.Context(), w.sub, 0, jetpull.MaxWait(patience)), call(t.Context(), w.sub, 5, jetpull.MaxWait(patience), jetpull.Heartbeat(time.Second))
	w.waiting(t, 2)
	for cuts := uint64(1); cuts <= 3; cuts++ {
		w.proxy.Cut()
		eventually(t, func() error {
			if n := w.sub.Stats().Reconnects; n < cuts {
				return fmt.Errorf("%d reconnects", n)
			}
			return nil
		}, "reconnect %d", cuts)
	}
	require.Empty(t, next)
	require.Empty(t, fetch)
	w.publish(t, 1)
	natstest.Publish(t, w.js, "s.b", 1)
	var got []*jetpull.Msg
	for _, ch := range []<-chan result{next, fetch} {
		res := receive(t, ch, "message after the cuts")
		require.NoError(t, res.err)
		require.Less(t, res.took, 10*time.Second)
		got = append(got, res.msgs...)
	}
	require.Len(t, got, 2)
	ackAll(t, got...)
	w.ackPending(t, 0)
}

func TestDeadlineHoldsWhileTheConnectionIsAway(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*natstest.Proxy, bool){
		"refused": func(p *natstest.Proxy, on bool) {
			p.Refuse(on)
			if on {
				p.Cut()
			}
		},
		"black hole": (*natstest.Proxy).BlackHole,
		"held":       (*natstest.Proxy).Hold,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
			waiting := call(t.Context(), w.sub, 5, jetpull.MaxWait(3*time.Second)) // long enough to be seen
			w.waiting(t, 1)
			fault(w.proxy, true)
			for _, end := range []struct {
				ch    <-chan result
				after time.Duration
			}{
				{waiting, 3 * time.Second},
				{call(t.Context(), w.sub, 0, jetpull.MaxWait(300*time.Millisecond)), 300 * time.Millisecond},
				{call(t.Context(), w.sub, 5, jetpull.FillBatch(), jetpull.MaxWait(300*time.Millisecond)), 300 * time.Millisecond},
			} {
				res := receive(t, end.ch, "time-out")
				requireIs(t, res.err, jetpull.ErrTimeout, nats.ErrTimeout)
				require.Less(t, res.took, end.after+800*time.Millisecond)
			}
			got := call(t.Context(), w.sub, 1, jetpull.MaxWait(patience))
			w.publish(t, 1)
			fault(w.proxy, false)
			res := receive(t, got, "message when the fault is over")
			require.NoError(t, res.err)
			ackAll(t, res.msgs...)
			w.ackPending(t, 0)
		})
	}
}

func TestNothingIsLostOverCuts(t *testing.T) {
	t.Parallel()
	const callers, total, cuts = 8, 4000, 6
	// An ack or a delivery that a cut swallows is delivered again when AckWait
	// is over; the test waits for that, so it is short here.
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
	var seen tally
	var twice, handled atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			for ctx.Err() == nil {
				res := <-call(ctx, w.sub, (i%3)*10, jetpull.MaxWait(patience))
				for _, m := range res.msgs {
					handled.Add(1)
					if seen.add(fmt.Sprint(m.Sequence())) > 1 {
						twice.Add(1)
						if m.Delivered() < 2 {
							t.Errorf("message %d came again though it was delivered once", m.Sequence())
						}
					}
					// It fails while the buffer for a lost connection is full;
					// the message comes again then.
					_ = m.Ack()
				}
				if res.err != nil && ctx.Err() == nil {
					t.Errorf("with %d messages seen: %v", seen.len(), res.err)
					return
				}
			}
		})
	}
	for i := range cuts {
		natstest.Publish(t, w.js, fmt.Sprintf("s.%d", i), total/cuts)
		w.proxy.Cut()
	}
	natstest.Publish(t, w.js, "s.rest", total%cuts)
	consumerHas(t, w.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == total }, "every message is acknowledged")
	stop()
	calling.Wait()
	require.Equal(t, total, seen.len(), "every message was handed over")
	require.Positive(t, w.sub.Stats().Reconnects)
	t.Logf("%d of %d messages came twice or more over %d reconnects", twice.Load(), total, w.sub.Stats().Reconnects)
	require.Less(t, twice.Load(), int64(total/2), "only what was in flight at a cut comes again")
}

func TestServerRestartWithinTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	r.publish(t, 2)
	fill := call(t.Context(), sub, 5, jetpull.FillBatch(), jetpull.MaxWait(patience))
	r.ackPending(t, 2)
	next := call(t.Context(), sub, 0, jetpull.MaxWait(patience), jetpull.Heartbeat(500*time.Millisecond))
	r.waiting(t, 2)
	r.server.Restart()
	r.publishSoon(t, 3)
	natstest.Publish(t, r.js, "s.b", 1)
	filled := receive(t, fill, "the whole batch over a restart")
	require.NoError(t, filled.err)
	require.Len(t, filled.msgs, 5)
	one := receive(t, next, "message after the restart")
	require.NoError(t, one.err)
	seen := map[uint64]bool{}
	for _, m := range append(filled.msgs, one.msgs...) {
		require.False(t, seen[m.Sequence()], "message %d came twice", m.Sequence())
		seen[m.Sequence()] = true
	}
	require.Len(t, seen, 6)
	ackAll(t, append(filled.msgs, one.msgs...)...)
	r.ackPending(t, 0)
}

// The server restarts while the client is in the middle of many fetches.
func TestServerRestartUnderLoad(t *testing.T) {
	t.Parallel()
	const total = 2000
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Second, MaxAckPending: -1})
	r.publish(t, total)
	var seen tally
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calling sync.WaitGroup
	for range 4 {
		calling.Go(func() {
			for ctx.Err() == nil {
				msgs, err := sub.Fetch(ctx, 10, jetpull.MaxWait(patience))
				for _, m := range msgs {
					seen.add(fmt.Sprint(m.Sequence()))
					_ = m.Ack() // what a restart swallows comes again
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("with %d messages seen: %v", seen.len(), err)
					return
				}
			}
		})
	}
	eventually(t, func() error {
		if n := seen.len(); n < total/10 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	}, "messages flow")
	r.server.Restart()
	eventually(t, func() error {
		c, err := lookUp(t, r.js, "S", "C")
		if err != nil {
			return err
		}
		if floor := c.CachedInfo().AckFloor.Stream; floor != total {
			return fmt.Errorf("acknowledged up to %d; %d messages seen", floor, seen.len())
		}
		return nil
	}, "every message is acknowledged")
	stop()
	calling.Wait()
	require.Equal(t, total, seen.len())
}

func TestMaxAckPendingStall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxAckPending: 2, AckWait: time.Minute})
	r.publish(t, 6)

	// Part of the batch, and then the server says nothing.
	res := receive(t, call(t.Context(), sub, 5, jetpull.MaxWait(patience)), "part of the batch")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1", "2")
	require.Less(t, res.took, 3*time.Second)
	held := res.msgs

	// Nothing may be delivered: the deadline ends it.
	res = receive(t, call(t.Context(), sub, 5, jetpull.MaxWait(500*time.Millisecond)), "time-out")
	requireIs(t, res.err, jetpull.ErrTimeout)
	require.Less(t, res.took, 1500*time.Millisecond)

	// NoWait does not wait for the deadline and does not claim that there is
	// nothing.
	res = receive(t, call(t.Context(), sub, 5, jetpull.NoWait(), jetpull.MaxWait(patience)), "answer")
	requireIs(t, res.err, jetpull.ErrTimeout)
	require.NotErrorIs(t, res.err, jetpull.ErrNoMessages)
	require.ErrorContains(t, res.err, "MaxAckPending")
	require.Less(t, res.took, 5*time.Second)

	// An ack opens the gate for the call that waits.
	silent := sub.Stats().Silent
	got := call(t.Context(), sub, 0, jetpull.MaxWait(patience))
	eventually(t, func() error {
		if sub.Stats().Silent == silent {
			return fmt.Errorf("still at %d silent pulls", silent)
		}
		return nil
	}, "the no-wait pull is given up")
	ackAll(t, held[0])
	res = receive(t, got, "message after an ack")
	require.NoError(t, res.err)
	ackAll(t, held[1], res.msgs[0])
	r.ackPending(t, 0)
}

// A one-shot that has brought what MaxAckPending allows is not ended by the
// server; its caller has to have the messages all the same, or nobody could
// acknowledge them.
func TestMaxAckPendingReachedByALongPull(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]jetpull.Option{
		"plain":     {jetpull.MaxWait(patience)},
		"heartbeat": {jetpull.MaxWait(patience), jetpull.Heartbeat(100 * time.Millisecond)},
		"max bytes": {jetpull.MaxWait(patience), jetpull.MaxBytes(1 << 20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{MaxAckPending: 2, AckWait: time.Minute})
			r.publish(t, 7)
			held, err := subscribe(t, r.js, "S", "C").Fetch(t.Context(), 2)
			require.NoError(t, err)
			// The look finds the consumer at its limit and goes unanswered.
			got := call(t.Context(), sub, 5, opts...)
			eventually(t, func() error {
				if s := sub.Stats(); s.Pulls < 2 {
					return fmt.Errorf("%d pulls", s.Pulls)
				}
				return nil
			}, "the long pull")
			start := time.Now()
			ackAll(t, held...)
			res := receive(t, got, "what MaxAckPending allows")
			require.NoError(t, res.err)
			require.NotEmpty(t, res.msgs)
			require.Less(t, time.Since(start), 4*time.Second, "%d messages were kept back", len(res.msgs))
			ackAll(t, res.msgs...)
		})
	}
}

func TestCloseWhileTheConnectionIsAway(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	waiting := call(t.Context(), w.sub, 5, jetpull.MaxWait(patience))
	w.waiting(t, 1)
	w.proxy.Refuse(true)
	w.proxy.Cut()
	eventually(t, func() error {
		if w.proxy.Connections() > 0 {
			return errors.New("still connected")
		}
		return nil
	}, "the connection is away")
	start := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- w.sub.Close(t.Context()) }()
	requireIs(t, receive(t, waiting, "end of the call").err, jetpull.ErrClosed)
	require.NoError(t, receive(t, closed, "end of Close"))
	require.Less(t, time.Since(start), 12*time.Second, "an inbox counts as drained after 10 s at most")
	w.proxy.Refuse(false)
	w.waiting(t, 0)
}

// A connection that does not come back ends the calls.
func TestConnectionThatDoesNotReconnect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{})
	proxy := natstest.NewProxy(t, r.server.URL())
	sub := subscribe(t, natstest.JetStream(t, connect(t, proxy.URL(), nats.NoReconnect())), "S", "C")
	waiting := call(t.Context(), sub, 5, jetpull.MaxWait(patience))
	r.waiting(t, 1)
	proxy.Cut()
	res := receive(t, waiting, "end of the call")
	requireIs(t, res.err, jetpull.ErrClosed, nats.ErrConnectionClosed)
	require.Less(t, res.took, 5*time.Second)
}

// A pull that the server has forgotten ends by the missed heartbeats, long
// before its expiry.
func TestMissedHeartbeats(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	got := call(t.Context(), w.sub, 1, jetpull.MaxWait(patience), jetpull.Heartbeat(100*time.Millisecond))
	w.waiting(t, 1)
	// The consumer is made anew, and knows nothing of the pull. The proxy
	// keeps the word of its end from the client.
	w.proxy.Hold(true)
	before := w.sub.Stats().Silent // of those of the old one that a busy machine sent late
	require.NoError(t, w.js.DeleteConsumer(t.Context(), "S", "C"))
	w.consumer(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	eventually(t, func() error {
		if w.sub.Stats().Silent == before {
			return fmt.Errorf("stats %+v", w.sub.Stats())
		}
		return nil
	}, "the heartbeats are missed")
	w.proxy.Hold(false)
	w.publish(t, 1)
	res := receive(t, got, "message of the new consumer")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
	require.Less(t, res.took, 10*time.Second)
}

func TestConfirmAcksOverACut(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	w.publish(t, 50)
	msgs, err := w.sub.Fetch(t.Context(), 50)
	require.NoError(t, err)
	require.Len(t, msgs, 50)
	w.proxy.Hold(true)
	confirmed := make(chan error, 1)
	go func() { confirmed <- jetpull.ConfirmAcks(t.Context(), msgs...) }()
	w.wire.Wait(func(ops []natstest.Op) bool {
		sent := 0
		for _, op := range pick(ops, "PUB") {
			if string(op.Body) == "+ACK" {
				sent++
			}
		}
		return sent >= len(msgs)
	})
	require.Empty(t, confirmed, "nothing is confirmed while the acks are held back")
	w.ackPending(t, len(msgs))
	w.proxy.Cut()
	w.proxy.Hold(false)
	require.NoError(t, receive(t, confirmed, "confirmation after the cut"))
	w.ackPending(t, 0)
	require.ErrorIs(t, jetpull.ConfirmAcks(t.Context(), msgs[0]), jetstream.ErrMsgAlreadyAckd)
}
