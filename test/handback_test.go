package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here hold the rule that nothing is stranded: with an AckWait of a
// minute, what no caller was handed is there for the next puller within two
// seconds, because it was handed back and not just forgotten.

const handBackWithin = 2 * time.Second

// history notes which messages were handed to callers.
type history struct {
	seen  tally
	count atomic.Int64
}

// note acknowledges messages; each may be handed over once.
func (h *history) note(t *testing.T, msgs ...*jetpull.Msg) {
	for _, m := range msgs {
		if n := h.seen.add(fmt.Sprint(m.Sequence())); n > 1 {
			t.Errorf("message %d was handed over %d times; this delivery is number %d", m.Sequence(), n, m.Delivered())
		}
		h.count.Add(1)
		if err := m.Ack(); err != nil {
			t.Errorf("ack of message %d: %v", m.Sequence(), err)
		}
	}
}

// collect fetches what is left of total with a subscription of its own.
func (h *history) collect(t *testing.T, r *rig, total int) (took time.Duration) {
	t.Helper()
	other := subscribe(t, r.js, "S", "C")
	start := time.Now()
	for h.count.Load() < int64(total) {
		msgs, err := other.Fetch(t.Context(), 500, jetpull.MaxWait(2*handBackWithin))
		require.NoError(t, err, "%d of %d messages were handed over; stats of the collector %+v", h.count.Load(), total, other.Stats())
		h.note(t, msgs...)
	}
	took = time.Since(start)
	require.Equal(t, total, h.seen.len())
	return took
}

func TestNothingIsStrandedWhenCallersGo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts func(*rand.Rand) []jetpull.Option
	}{
		{"plain", func(*rand.Rand) []jetpull.Option { return nil }},
		{"mixed terms", func(rng *rand.Rand) []jetpull.Option {
			return [][]jetpull.Option{
				nil,
				{jetpull.NoWait()},
				{jetpull.FillBatch()},
				{jetpull.MaxBytes(60 + rng.IntN(500))},
				{jetpull.Heartbeat(50 * time.Millisecond)},
				{jetpull.MaxWait(time.Millisecond + time.Duration(rng.IntN(int(10*time.Millisecond))))},
			}[rng.IntN(6)]
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const callers, total = 24, 6000
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := newRig(t)
			r.consumer(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1})
			nc := r.server.Connect(t)
			sub, err := jetpull.Subscribe(t.Context(), natstest.JetStream(t, nc), "S", "C")
			require.NoError(t, err)
			var h history
			var calling sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for i := range callers {
				calling.Go(func() { goAtRandom(ctx, t, sub, &h, rand.New(rand.NewPCG(seed, uint64(i))), tc.opts) })
			}
			// The messages come in bursts, so that callers wait in between.
			for i := range total / 100 {
				natstest.Publish(t, r.js, fmt.Sprintf("s.%d", i), 100)
			}
			// Closing is one more way to go away while messages arrive.
			require.NoError(t, sub.Close(t.Context()))
			stop()
			calling.Wait()
			handed := h.count.Load()
			took := h.collect(t, r, total)
			require.Less(t, took, handBackWithin)
			require.Positive(t, handed)
			r.ackPending(t, 0)
			require.Zero(t, libSubscriptions(nc), "no inbox is left")
			t.Logf("%d messages handed over before Close, %d handed back, collected in %v", handed, sub.Stats().HandedBack, took)
		})
	}
}

// goAtRandom calls Next, Fetch and AckNext with contexts that end soon.
func goAtRandom(ctx context.Context, t *testing.T, sub *jetpull.Subscription, h *history, rng *rand.Rand, opts func(*rand.Rand) []jetpull.Option) {
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(int(3*time.Millisecond))))
		set := opts(rng)
		msgs, err := sub.Fetch(callCtx, 1+rng.IntN(20), set...)
		if len(msgs) > 0 && err != nil {
			t.Errorf("%d messages and an error: %v", len(msgs), err)
		}
		if len(msgs) > 0 && len(set) == 0 && rng.IntN(3) == 0 {
			last := msgs[len(msgs)-1]
			msgs = msgs[:len(msgs)-1]
			h.noteOnly(t, last)
			next, err := last.AckNext(callCtx)
			if next != nil {
				msgs = append(msgs, next)
			}
			if errors.Is(err, jetpull.ErrClosed) {
				// The one error that leaves the message to its caller.
				if err := last.Ack(); err != nil {
					t.Errorf("ack after AckNext: %v", err)
				}
			}
		}
		h.note(t, msgs...)
		cancel()
	}
}

// noteOnly notes a message that its caller acknowledges in another way.
func (h *history) noteOnly(t *testing.T, m *jetpull.Msg) {
	if n := h.seen.add(fmt.Sprint(m.Sequence())); n > 1 {
		t.Errorf("message %d was handed over %d times", m.Sequence(), n)
	}
	h.count.Add(1)
}

// late brings about n messages that arrive after their caller has gone: the
// server has sent them, the proxy holds them back, and the caller cancels.
func late(t *testing.T, w *tap, n int, whileHeld func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts := []jetpull.Option{jetpull.MaxWait(patience)}
	if n > 1 {
		opts = append(opts, jetpull.FillBatch())
	}
	got := call(ctx, w.sub, n, opts...)
	w.waiting(t, 1)
	before, sent := w.delivered(t), w.sent(t)
	w.proxy.Hold(true)
	w.publish(t, n)
	consumerHas(t, w.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.Delivered.Consumer == before+uint64(n) }, "all are delivered")
	// That is counted before they are queued for the connection, and what is not
	// queued yet finds nobody when the caller goes.
	eventually(t, func() error {
		if now := w.sent(t); now < sent+int64(n) {
			return fmt.Errorf("%d of %d", now-sent, n)
		}
		return nil
	}, "all deliveries are on the wire")
	cancel()
	requireIs(t, receive(t, got, "end of the call").err, context.Canceled)
	whileHeld()
	w.proxy.Hold(false)
}

// sent is how many messages the server has sent to the connection.
func (w *tap) sent(t *testing.T) int64 {
	t.Helper()
	z, err := w.server.Unwrap().Connz(&server.ConnzOptions{CID: w.id})
	require.NoError(t, err)
	require.Len(t, z.Conns, 1)
	return z.Conns[0].OutMsgs
}

func (r *rig) delivered(t *testing.T) uint64 {
	t.Helper()
	c, err := r.js.Consumer(t.Context(), "S", "C")
	require.NoError(t, err)
	return c.CachedInfo().Delivered.Consumer
}

func TestLateMessageIsHandedBack(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	late(t, w, 1, func() {})
	other := subscribe(t, w.js, "S", "C")
	res := receive(t, call(t.Context(), other, 0, jetpull.MaxWait(patience)), "the message that was handed back")
	require.NoError(t, res.err)
	require.Less(t, res.took, handBackWithin)
	require.EqualValues(t, 2, res.msgs[0].Delivered())
	require.EqualValues(t, 1, w.sub.Stats().HandedBack)
	ackAll(t, res.msgs...)
}

func TestLateMessageGoesToTheNextCaller(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 5} {
		t.Run(fmt.Sprintf("n of %d", n), func(t *testing.T) {
			w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
			var next <-chan result
			late(t, w, 1, func() {
				next = call(t.Context(), w.sub, n, jetpull.MaxWait(patience))
				// The look goes unanswered, so the caller is in its long pull
				// when the message comes.
				eventually(t, func() error {
					if pulls := w.sub.Stats().Pulls; pulls < 4 {
						return fmt.Errorf("%d pulls", pulls)
					}
					return nil
				}, "the next caller waits with a long pull")
			})
			res := receive(t, next, "the message of the caller that went away")
			require.NoError(t, res.err)
			require.Len(t, res.msgs, 1)
			require.EqualValues(t, 1, res.msgs[0].Delivered(), "without a detour by the server")
			require.Less(t, res.took, patience/2, "it does not wait for more")
			require.Zero(t, w.sub.Stats().HandedBack)
			ackAll(t, res.msgs...)
		})
	}
}

func TestCloseHandsBackWhatIsOnTheWire(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	closed := make(chan error, 1)
	late(t, w, 1, func() {
		go func() { closed <- w.sub.Close(t.Context()) }()
		eventually(t, func() error {
			if _, err := w.sub.Next(t.Context(), jetpull.NoWait()); err == nil {
				return fmt.Errorf("not closed yet")
			}
			return nil
		}, "closing has begun")
		require.Empty(t, closed, "Close waits for what is on the wire")
	})
	require.NoError(t, receive(t, closed, "end of Close"))
	require.EqualValues(t, 1, w.sub.Stats().HandedBack)
	other := subscribe(t, w.js, "S", "C")
	res := receive(t, call(t.Context(), other, 0, jetpull.MaxWait(patience)), "the message that was handed back")
	require.NoError(t, res.err)
	require.Less(t, res.took, handBackWithin)
	require.EqualValues(t, 2, res.msgs[0].Delivered())
}

// A Close whose context ends goes on by itself.
func TestCloseThatIsNotWaitedForHandsBackToo(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	late(t, w, 1, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := w.sub.Close(ctx)
		requireIs(t, err, context.DeadlineExceeded)
	})
	other := subscribe(t, w.js, "S", "C")
	res := receive(t, call(t.Context(), other, 0, jetpull.MaxWait(patience)), "the message that was handed back")
	require.NoError(t, res.err)
	require.Less(t, res.took, handBackWithin)
	require.NoError(t, w.sub.Close(t.Context()), "closing again waits for the rest")
}

func TestAckNoneKeepsLateMessagesForTheNextCall(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	late(t, w, 3, func() {})
	eventually(t, func() error {
		if n := w.sub.Stats().Messages; n != 3 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	}, "the late messages arrive")
	pulls := w.sub.Stats().Pulls
	m, err := w.sub.Next(t.Context(), jetpull.NoWait())
	require.NoError(t, err)
	requireBodies(t, []*jetpull.Msg{m}, "1")
	msgs, err := w.sub.Fetch(t.Context(), 1)
	require.NoError(t, err)
	requireBodies(t, msgs, "2")
	require.Equal(t, pulls, w.sub.Stats().Pulls, "what is kept needs no pull")
	require.Zero(t, w.sub.Stats().HandedBack)

	require.NoError(t, w.sub.Close(t.Context()))
	require.EqualValues(t, 1, w.sub.Stats().Dropped, "the third was never handed over, and Close says so")
	require.Zero(t, w.sub.Stats().HandedBack)
}
