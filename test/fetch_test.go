package test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

func TestFetchAndNext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		cfg  jetstream.ConsumerConfig
	}{
		{"durable", jetstream.ConsumerConfig{Durable: "C"}},
		{"ephemeral", jetstream.ConsumerConfig{Name: "C", InactiveThreshold: time.Minute}},
		{"in memory", jetstream.ConsumerConfig{Durable: "C", MemoryStorage: true}},
		{"ack all", jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckAllPolicy}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			sub := r.subscribe(t, tc.cfg)
			r.publish(t, 10)

			msgs, err := sub.Fetch(t.Context(), 3)
			require.NoError(t, err)
			requireBodies(t, msgs, "1", "2", "3")
			for want := 4; want <= 6; want++ {
				m, err := sub.Next(t.Context())
				require.NoError(t, err)
				requireBodies(t, []*jetpull.Msg{m}, fmt.Sprint(want))
				meta, err := m.Metadata()
				require.NoError(t, err)
				require.EqualValues(t, want, meta.Sequence.Stream)
				require.EqualValues(t, 1, meta.NumDelivered)
				require.Equal(t, "s.a", m.Subject())
				msgs = append(msgs, m)
			}
			rest, err := sub.Fetch(t.Context(), 100)
			require.NoError(t, err, "a batch larger than what is there")
			requireBodies(t, rest, "7", "8", "9", "10")
			ackAll(t, append(msgs, rest...)...)
			r.ackPending(t, 0)
		})
	}
}

func TestEphemeralWithAGeneratedName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, err := r.js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	require.NoError(t, err)
	sub := subscribe(t, r.js, "S", c.CachedInfo().Name)
	r.publish(t, 2)
	msgs, err := sub.Fetch(t.Context(), 5)
	require.NoError(t, err)
	requireBodies(t, msgs, "1", "2")
	require.NoError(t, msgs[0].Ack(), "with ack policy none an ack is nothing")
	info, err := sub.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, c.CachedInfo().Name, info.Name)
}

func TestFetchReturnsWithTheFirstMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	got := call(t.Context(), sub, 10, jetpull.MaxWait(patience))
	r.waiting(t, 1)
	r.publish(t, 1)
	res := receive(t, got, "the first message")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
	require.Less(t, res.took, 5*time.Second, "it does not wait for ten")
}

func TestFetchFillBatchWaitsForAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 2)
	got := call(t.Context(), sub, 5, jetpull.FillBatch(), jetpull.MaxWait(patience))
	r.ackPending(t, 2)
	natstest.Publish(t, r.js, "s.b", 2)
	r.ackPending(t, 4)
	select {
	case res := <-got:
		t.Fatalf("it returned %d messages and error %v with 4 of 5 delivered", len(res.msgs), res.err)
	default:
	}
	natstest.Publish(t, r.js, "s.c", 1)
	res := receive(t, got, "the whole batch")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1", "2", "1", "2", "1")

	// At the deadline it returns what there is, without an error.
	natstest.Publish(t, r.js, "s.d", 1)
	res = receive(t, call(t.Context(), sub, 5, jetpull.FillBatch(), jetpull.MaxWait(time.Second)), "part of a batch")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1")
	require.GreaterOrEqual(t, res.took, 850*time.Millisecond)
}

func TestFetchMaxBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 20)
	r.pending(t, 20) // the number is part of each message's reply, and so of its size
	one := receive(t, call(t.Context(), sub, 1), "a message to measure").msgs
	size := len(one[0].Subject()) + len(one[0].Reply()) + len(one[0].Data())
	msgs, err := sub.Fetch(t.Context(), 20, jetpull.MaxBytes(4*size))
	require.NoError(t, err)
	requireBodies(t, msgs, "2", "3", "4", "5")
	// Not a byte to spare for a fifth, and one byte short of the fourth.
	msgs, err = sub.Fetch(t.Context(), 20, jetpull.MaxBytes(4*size-1))
	require.NoError(t, err)
	requireBodies(t, msgs, "6", "7", "8")
	m, err := sub.Next(t.Context())
	require.NoError(t, err, "what is over the limit is there for the next call")
	requireBodies(t, []*jetpull.Msg{m}, "9")
}

// A limit that is used up just so ends the server's pull without a word.
func TestFetchMaxBytesUsedUpExactlyWithoutABacklog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 1)
	one := receive(t, call(t.Context(), sub, 1), "a message to measure").msgs
	size := len(one[0].Subject()) + len(one[0].Reply()) + len(one[0].Data())
	r.publish(t, 2)
	res := receive(t, call(t.Context(), sub, 10, jetpull.MaxBytes(2*size), jetpull.MaxWait(patience)), "two messages")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "1", "2")
	require.Less(t, res.took, 2*time.Second, "it does not wait for a status that never comes")
}

// TestFetchAMillion is not parallel: it counts what the process allocates.
func TestFetchAMillion(t *testing.T) {
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxAckPending: -1, AckPolicy: jetstream.AckNonePolicy})
	r.publish(t, 5)
	r.pending(t, 5)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	msgs, err := sub.Fetch(t.Context(), 1_000_000)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Len(t, msgs, 5)
	require.LessOrEqual(t, cap(msgs), 1000, "the result grows with what arrives")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), "it allocates for what arrives, not for n")

	// More than one pull may ask for comes in one call.
	const n = 10_000
	r.publish(t, n)
	r.pending(t, n)
	msgs, err = sub.Fetch(t.Context(), 1_000_000)
	require.NoError(t, err)
	require.Len(t, msgs, n)
	for i, m := range msgs {
		require.EqualValues(t, i+6, m.Sequence())
	}
}

// A stored message may carry any header, those of a status frame included.
func TestUserMessageThatLooksLikeAStatusIsData(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	headers := []nats.Header{
		{"Status": {"404"}, "Description": {"No Messages"}},
		{"Status": {"409"}, "Description": {"Consumer Deleted"}},
		{"Status": {"100"}},
		{"Status": {"503"}},
		{"Status": {"408"}, "Nats-Pending-Messages": {"1"}, "Nats-Pending-Bytes": {"0"}},
	}
	send := func() {
		for _, h := range headers {
			_, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: "s.a", Header: h})
			require.NoError(t, err)
		}
	}
	check := func(msgs []*jetpull.Msg) {
		t.Helper()
		require.Len(t, msgs, len(headers))
		for i, m := range msgs {
			require.Empty(t, m.Data())
			require.Equal(t, headers[i]["Status"], m.Headers()["Status"])
		}
		ackAll(t, msgs...)
	}
	send()
	msgs, err := sub.Fetch(t.Context(), 10)
	require.NoError(t, err)
	check(msgs)
	send()
	msgs = nil
	for range headers {
		m, err := sub.Next(t.Context())
		require.NoError(t, err)
		msgs = append(msgs, m)
	}
	check(msgs)
	got := call(t.Context(), sub, len(headers), jetpull.FillBatch(), jetpull.MaxWait(patience))
	r.waiting(t, 1)
	send()
	check(receive(t, got, "messages to a waiting pull").msgs)
	r.ackPending(t, 0)
}

func TestContextCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	cause := errors.New("the user went home")

	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		pulls := sub.Stats().Pulls
		for _, n := range []int{0, 5} {
			res := receive(t, call(ctx, sub, n), "refusal")
			requireIs(t, res.err, context.Canceled, cause)
		}
		require.Equal(t, pulls, sub.Stats().Pulls, "nothing is sent")
	})
	t.Run("deadline passed", func(t *testing.T) {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		_, err := sub.Next(ctx)
		requireIs(t, err, context.DeadlineExceeded, jetpull.ErrTimeout, nats.ErrTimeout)
	})
	t.Run("during", func(t *testing.T) {
		for _, n := range []int{0, 5} {
			ctx, cancel := context.WithCancelCause(t.Context())
			got := call(ctx, sub, n, jetpull.MaxWait(patience))
			r.waiting(t, 1)
			cancel(cause)
			res := receive(t, got, "end of the call")
			requireIs(t, res.err, context.Canceled, cause)
			require.NotErrorIs(t, res.err, jetpull.ErrTimeout)
			// The server drops the pull at its next look at a queue of pulls, so
			// a message that comes now goes to whoever asks for it next.
			r.publish(t, 1)
			m, err := sub.Next(t.Context())
			require.NoError(t, err)
			ackAll(t, m)
		}
	})
	t.Run("during a batch that is partly there", func(t *testing.T) {
		r.publish(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		before := sub.Stats().Messages
		got := call(ctx, sub, 5, jetpull.FillBatch(), jetpull.MaxWait(patience))
		r.ackPending(t, 2)
		r.waiting(t, 1)
		eventually(t, func() error {
			if n := sub.Stats().Messages - before; n < 2 {
				return fmt.Errorf("%d messages", n)
			}
			return nil
		}, "what the server has delivered arrives")
		cancel()
		res := receive(t, got, "end of the call")
		require.NoError(t, res.err, "messages and an error never come together")
		requireBodies(t, res.msgs, "1", "2")
		ackAll(t, res.msgs...)
	})
	t.Run("after delivery", func(t *testing.T) {
		r.publish(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		msgs, err := sub.Fetch(ctx, 5)
		require.NoError(t, err)
		cancel()
		requireBodies(t, msgs, "1", "2")
		ackAll(t, msgs...)
		r.ackPending(t, 0)
	})
}

func TestSixtyFourCallers(t *testing.T) {
	t.Parallel()
	const callers, each, batch = 64, 25, 4
	for _, tc := range []struct {
		name string
		n    int
	}{{"next", 0}, {"fetch", batch}} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute})
			total := callers * each
			var got atomic.Int64
			var seen tally
			var callersDone sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range callers {
				callersDone.Go(func() {
					for ctx.Err() == nil {
						res := <-call(ctx, sub, tc.n, jetpull.MaxWait(patience))
						for _, m := range res.msgs {
							if n := seen.add(fmt.Sprint(m.Sequence())); n > 1 {
								t.Errorf("sequence %d came %d times", m.Sequence(), n)
							}
							if err := m.Ack(); err != nil {
								t.Errorf("ack: %v", err)
							}
							if got.Add(1) == int64(total) {
								cancel()
							}
						}
						if res.err != nil && ctx.Err() == nil {
							t.Errorf("after %d messages: %v", got.Load(), res.err)
							return
						}
					}
				})
			}
			r.publish(t, total)
			callersDone.Wait()
			require.EqualValues(t, total, got.Load())
			require.Equal(t, total, seen.len())
			r.ackPending(t, 0)
			// A long pull whose caller was served by another pull is dropped, and
			// what it had on the wire may find nobody waiting. That is rare.
			require.Less(t, sub.Stats().HandedBack, uint64(total/20))
			require.NoError(t, r.nc.LastError(), "no consumer was too slow")
		})
	}
}

func TestDomain(t *testing.T) {
	t.Parallel()
	r := newRig(t, natstest.WithDomain("hub"))
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 3)
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	m, err = m.AckNext(t.Context())
	require.NoError(t, err)
	ackAll(t, m)
	msgs, err := sub.Fetch(t.Context(), 5)
	require.NoError(t, err)
	requireBodies(t, msgs, "3")
	_, err = sub.Next(t.Context(), jetpull.NoWait())
	requireIs(t, err, jetpull.ErrNoMessages)

	other, err := jetstream.NewWithDomain(r.nc, "edge")
	require.NoError(t, err)
	_, err = jetpull.Subscribe(t.Context(), other, "S", "C")
	requireIs(t, err, jetpull.ErrNoResponders, nats.ErrNoResponders)
	require.ErrorContains(t, err, "$JS.edge.API.")
}

const twoAccounts = `
accounts {
  OWNER {
    jetstream: enabled
    users: [{user: owner, password: pw}]
    exports: [
      {service: "$JS.API.>", response: stream}
      {service: "$JS.ACK.>"}
      {stream: "deliver.>"}
    ]
  }
  CLIENT {
    users: [{user: client, password: pw}]
    imports: [
      {service: {account: OWNER, subject: "$JS.API.>"}, to: "far.API.>"}
      {service: {account: OWNER, subject: "$JS.ACK.>"}}
    ]
  }
}`

func TestAPIPrefixAcrossAccounts(t *testing.T) {
	t.Parallel()
	server := natstest.RunServer(t, natstest.WithConfig(twoAccounts))
	owner := natstest.JetStream(t, server.Connect(t, nats.UserInfo("owner", "pw")))
	natstest.Stream(t, owner, "S", "s.>")
	natstest.Consumer(t, owner, "S", jetstream.ConsumerConfig{Durable: "C", AckWait: time.Minute})
	natstest.Publish(t, owner, "s.a", 4)

	nc := server.Connect(t, nats.UserInfo("client", "pw"))
	far, err := jetstream.NewWithAPIPrefix(nc, "far.API")
	require.NoError(t, err)
	sub := subscribe(t, far, "S", "C")
	msgs, err := sub.Fetch(t.Context(), 2)
	require.NoError(t, err)
	requireBodies(t, msgs, "1", "2")
	ackAll(t, msgs...)
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	requireBodies(t, []*jetpull.Msg{m}, "3")
	m, err = m.AckNext(t.Context())
	require.NoError(t, err)
	requireBodies(t, []*jetpull.Msg{m}, "4")
	ackAll(t, m)

	got := call(t.Context(), sub, 5, jetpull.MaxWait(patience))
	consumerHas(t, owner, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumWaiting == 1 }, "the long pull waits")
	natstest.Publish(t, owner, "s.a", 1)
	res := receive(t, got, "message over the account's border")
	require.NoError(t, res.err)
	ackAll(t, res.msgs...)
	_, err = sub.Next(t.Context(), jetpull.MaxWait(300*time.Millisecond))
	requireIs(t, err, jetpull.ErrTimeout)
	consumerHas(t, owner, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumAckPending == 0 }, "all acknowledged")
}

func TestMissingConsumerAndStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := jetpull.Subscribe(t.Context(), r.js, "S", "NOPE")
	requireIs(t, err, jetstream.ErrConsumerNotFound)
	require.ErrorContains(t, err, `"NOPE"`)
	_, err = jetpull.Subscribe(t.Context(), r.js, "NOPE", "C")
	requireIs(t, err, jetstream.ErrStreamNotFound)
	require.ErrorContains(t, err, `"NOPE"`)
}
