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

// The tests here hold the rule that nothing is stranded: AckWait is an hour, so what
// is with another puller in the end was handed back to the server and not forgotten.

// history notes which messages were handed over, each once.
type history struct {
	seen  tally
	count atomic.Int64
}

func (h *history) add(t *testing.T, msgs ...*jetpull.Msg) int {
	for _, m := range msgs {
		if n := h.seen.add(fmt.Sprint(m.Sequence())); n > 1 {
			t.Errorf("message %d was handed over %d times; this delivery is number %d", m.Sequence(), n, m.Delivered())
		}
		h.count.Add(1)
	}
	return int(h.count.Load())
}

// note is add with an acknowledgement.
func (h *history) note(t *testing.T, msgs ...*jetpull.Msg) {
	h.add(t, msgs...)
	for _, m := range msgs {
		if err := m.Ack(); err != nil {
			t.Errorf("ack of message %d: %v", m.Sequence(), err)
		}
	}
}

// all waits until n messages are handed over.
func (h *history) all(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := h.seen.len(); got < n {
			return fmt.Errorf("%d of %d messages", got, n)
		}
		return nil
	}, "everything is handed over")
}

func TestNothingIsStrandedWhenCallersGo(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]func(*rand.Rand) []jetpull.Option{
		"plain": func(*rand.Rand) []jetpull.Option { return nil },
		"mixed terms": func(rng *rand.Rand) []jetpull.Option {
			return [][]jetpull.Option{
				nil,
				{jetpull.NoWait()},
				{jetpull.FillBatch()},
				{jetpull.MaxBytes(60 + rng.IntN(500))},
				{jetpull.Heartbeat(50 * time.Millisecond)},
				{jetpull.MaxWait(time.Millisecond + time.Duration(rng.IntN(int(10*time.Millisecond))))},
			}[rng.IntN(6)]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const callers, total = 24, 6000
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := newRig(t)
			r.consumer(t, jetstream.ConsumerConfig{AckWait: forever, MaxAckPending: -1})
			nc := r.server.Connect(t)
			sub, err := jetpull.Subscribe(t.Context(), natstest.JetStream(t, nc), "S", "C")
			require.NoError(t, err)
			var h history
			var calling sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for i := range callers {
				calling.Go(func() { goAtRandom(ctx, t, sub, &h, rand.New(rand.NewPCG(seed, uint64(i))), opts) })
			}
			for i := range total / 100 { // in bursts, so that callers wait in between
				natstest.Publish(t, r.js, fmt.Sprintf("s.%d", i), 100)
			}
			// Closing is one more way to go away while messages arrive.
			require.NoError(t, sub.Close(t.Context()))
			stop()
			calling.Wait()
			require.Positive(t, h.count.Load())
			other := consume(t, subscribe(t, r.js, "S", "C"), func(_ context.Context, m *jetpull.Msg) error { h.add(t, m); return nil })
			h.all(t, total)
			r.ackPending(t, 0)
			other.end(t)
			require.Zero(t, libSubscriptions(nc), "no inbox is left")
		})
	}
}

// goAtRandom calls Fetch and AckNext with contexts that end soon.
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
			h.add(t, last)
			next, err := last.AckNext(callCtx)
			if next != nil {
				msgs = append(msgs, next)
			}
			if errors.Is(err, jetpull.ErrClosed) { // the one error that leaves the message to its caller
				if err := last.Ack(); err != nil {
					t.Errorf("ack after AckNext: %v", err)
				}
			}
		}
		h.note(t, msgs...)
		cancel()
	}
}

// late brings about n messages that arrive after their caller has gone: the
// server has sent them, the proxy holds them back, and the caller cancels.
func late(t *testing.T, w *tap, n int, whileHeld func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts := []jetpull.Option{jetpull.MaxWait(forever)}
	if n > 1 {
		opts = append(opts, jetpull.FillBatch())
	}
	got := call(ctx, w.sub, n, opts...)
	w.waiting(t, 1)
	sent := w.sent(t)
	w.proxy.Hold(true)
	w.publish(t, n)
	// A delivery is counted before it is queued for the connection, and what is not
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

// TestALateMessageIsHandedBack, whatever its Subscription does meanwhile.
func TestALateMessageIsHandedBack(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*testing.T, *tap) (end func() error){
		"idle": func(*testing.T, *tap) func() error { return func() error { return nil } },
		"Close": func(t *testing.T, w *tap) func() error {
			closed := make(chan error, 1)
			go func() { closed <- w.sub.Close(t.Context()) }()
			eventually(t, func() error {
				if _, err := w.sub.Next(t.Context(), jetpull.NoWait()); err == nil {
					return errors.New("not closed yet")
				}
				return nil
			}, "closing has begun")
			require.Empty(t, closed, "it waits for what is on the wire")
			return func() error { return receive(t, closed, "end of Close") }
		},
		"Close that is not waited for": func(t *testing.T, w *tap) func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			requireIs(t, w.sub.Close(ctx), context.DeadlineExceeded)
			return func() error { return w.sub.Close(t.Context()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTap(t, jetstream.ConsumerConfig{AckWait: forever})
			var end func() error
			late(t, w, 1, func() { end = meanwhile(t, w) })
			require.NoError(t, end())
			msgs := served(t, call(t.Context(), subscribe(t, w.js, "S", "C"), 0, jetpull.MaxWait(forever)), "the message that was handed back")
			require.EqualValues(t, 2, msgs[0].Delivered())
			require.EqualValues(t, 1, w.sub.Stats().HandedBack)
			ackAll(t, msgs...)
		})
	}
}

func TestALateMessageGoesToTheNextCaller(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 5} {
		t.Run(fmt.Sprintf("n of %d", n), func(t *testing.T) {
			t.Parallel()
			w := newTap(t, jetstream.ConsumerConfig{AckWait: forever})
			var next <-chan result
			late(t, w, 1, func() {
				pulls := w.sub.Stats().Pulls
				next = call(t.Context(), w.sub, n, jetpull.MaxWait(forever))
				// The look goes unanswered, so the caller is in its long pull when the
				// message comes.
				statsBecome(t, w.sub, "the next caller waits with a long pull", func(s jetpull.Stats) bool { return s.Pulls >= pulls+2 })
			})
			msgs := served(t, next, "the message of the caller that went away, and no more")
			require.Len(t, msgs, 1)
			require.EqualValues(t, 1, msgs[0].Delivered(), "without a detour by the server")
			require.Zero(t, w.sub.Stats().HandedBack)
			ackAll(t, msgs...)
		})
	}
}

func TestAckNoneKeepsLateMessagesForTheNextCall(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	late(t, w, 3, func() {})
	statsBecome(t, w.sub, "the late messages arrive", func(s jetpull.Stats) bool { return s.Messages == 3 })
	pulls := w.sub.Stats().Pulls
	requireBodies(t, []*jetpull.Msg{next(t, w.sub, jetpull.NoWait())}, "1")
	requireBodies(t, fetch(t, w.sub, 1), "2")
	require.Equal(t, pulls, w.sub.Stats().Pulls, "what is kept needs no pull")
	require.NoError(t, w.sub.Close(t.Context()))
	require.EqualValues(t, 1, w.sub.Stats().Dropped, "the third was never handed over, and Close says so")
	require.Zero(t, w.sub.Stats().HandedBack)
}

// stopped is a Consume or a loop over Messages that stops at its twentieth message,
// when others are read ahead. What it is handling then it goes on with for long.
type stopped struct {
	history
	t    *testing.T
	r    *rig
	sub  *jetpull.Subscription
	once sync.Once
	at   chan struct{} // says that it stops
	busy chan struct{} // closed when the handlers that run may end
}

func newStopped(t *testing.T, messages int) *stopped {
	r := newRig(t)
	s := &stopped{
		t: t, r: r, at: make(chan struct{}, 1), busy: make(chan struct{}),
		sub: r.subscribe(t, jetstream.ConsumerConfig{AckWait: forever, MaxAckPending: -1}),
	}
	r.publish(t, messages)
	return s
}

// takes calls stop at the twentieth message, and goes on with that and those that
// follow.
func (s *stopped) takes(m *jetpull.Msg, stop func()) {
	if s.add(s.t, m) < 20 {
		return
	}
	s.once.Do(func() {
		statsBecome(s.t, s.sub, "messages are read ahead", func(s jetpull.Stats) bool { return s.Buffered > 0 })
		s.at <- struct{}{}
		stop()
	})
	<-s.busy
}

func (s *stopped) consume(ctx context.Context, stop func(), opts ...jetpull.Option) error {
	return s.sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		s.takes(m, stop)
		return nil
	}, append(opts, jetpull.Concurrency(3))...)
}

func (s *stopped) loop(ctx context.Context, stop func()) (last error) {
	for m, err := range s.sub.Messages(ctx) {
		if last = err; err != nil {
			continue
		}
		if err := m.Ack(); err != nil {
			return err
		}
		s.takes(m, stop)
	}
	return last
}

// close closes the Subscription, which waits for what runs.
func (s *stopped) close() { go func() { _ = s.sub.Close(context.WithoutCancel(s.t.Context())) }() }

// start runs what is to be stopped.
func (s *stopped) start(run func(context.Context, context.CancelFunc) error) chan error {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, cancel) }()
	receive(s.t, s.at, "the stop")
	return ended
}

// TestAfterAnyStopNothingIsStranded: what the one that stops has read ahead and not
// handed over is with another one, though its handlers go on.
func TestAfterAnyStopNothingIsStranded(t *testing.T) {
	t.Parallel()
	const messages = 1000
	for _, tc := range []struct {
		name string
		run  func(*stopped, context.Context, context.CancelFunc) error
		is   error
		// early: it ends while its handlers go on, or none can.
		early bool
	}{
		{"Consume, context ends", func(s *stopped, ctx context.Context, cancel context.CancelFunc) error { return s.consume(ctx, cancel) }, nil, false},
		{"Consume, context ends, DrainTimeout", func(s *stopped, ctx context.Context, cancel context.CancelFunc) error {
			return s.consume(ctx, cancel, jetpull.DrainTimeout(100*time.Millisecond))
		}, jetpull.ErrDrainTimeout, true},
		{"Consume, Close", func(s *stopped, ctx context.Context, _ context.CancelFunc) error { return s.consume(ctx, s.close) }, jetpull.ErrClosed, false},
		{"Messages, break", func(s *stopped, ctx context.Context, _ context.CancelFunc) error {
			close(s.busy)
			for m, err := range s.sub.Messages(ctx) {
				if err != nil {
					return err
				}
				done := false
				s.takes(m, func() { done = true })
				if err := m.Ack(); done || err != nil {
					return err
				}
			}
			return nil
		}, nil, true},
		{"Messages, context ends", func(s *stopped, ctx context.Context, cancel context.CancelFunc) error { return s.loop(ctx, cancel) }, nil, false},
		{"Messages, Close", func(s *stopped, ctx context.Context, _ context.CancelFunc) error { return s.loop(ctx, s.close) }, jetpull.ErrClosed, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newStopped(t, messages)
			ended := s.start(func(ctx context.Context, cancel context.CancelFunc) error { return tc.run(s, ctx, cancel) })
			other := consume(t, subscribe(t, s.r.js, "S", "C"), func(_ context.Context, m *jetpull.Msg) error { s.add(t, m); return nil })
			s.all(t, messages)
			if !tc.early {
				require.Empty(t, ended, "it waits for its handlers")
				close(s.busy)
			}
			require.ErrorIs(t, receive(t, ended, "the end"), tc.is)
			if tc.early && tc.is != nil {
				close(s.busy)
			}
			s.r.ackPending(t, 0)
			other.end(t)
		})
	}
}

// TestAfterADeletionNothingIsStranded: the consumer is deleted while handlers run,
// and created again. All goes to another one of the new consumer, and nothing to the
// one that ends by it.
func TestAfterADeletionNothingIsStranded(t *testing.T) {
	t.Parallel()
	const messages = 100
	s := newStopped(t, messages)
	ended := s.start(func(ctx context.Context, _ context.CancelFunc) error {
		return s.consume(ctx, func() {}, jetpull.Prefetch(2*messages))
	})
	// All have been read ahead, and an open pull waits, by which it hears of the end.
	consumerHas(t, s.r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumPending == 0 && i.NumWaiting > 0 }, "a pull waits")
	require.NoError(t, s.r.js.DeleteConsumer(t.Context(), "S", "C"))
	eventually(t, func() error { // a busy server may still be removing the files of the old one
		_, err := s.r.js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "C", AckWait: forever, MaxAckPending: -1})
		return err
	}, "the consumer is created again")
	var again history
	other := consume(t, subscribe(t, s.r.js, "S", "C"), func(_ context.Context, m *jetpull.Msg) error { again.add(t, m); return nil })
	again.all(t, messages)
	require.Empty(t, ended, "it waits for its handlers")
	close(s.busy)
	require.ErrorIs(t, receive(t, ended, "the end"), jetpull.ErrConsumerDeleted)
	s.r.ackPending(t, 0)
	other.end(t)
}
