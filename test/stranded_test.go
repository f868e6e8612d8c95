package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here hold the rule that nothing is stranded: AckWait is an hour, so what
// is with another puller in the end was handed back to the server and not forgotten.

// history notes which messages were handed over, each once.
type history struct{ seen tally }

func (h *history) add(t *testing.T, msgs ...*jetpull.Msg) int {
	for _, m := range msgs {
		if n := h.seen.add(fmt.Sprint(m.Sequence())); n > 1 {
			t.Errorf("message %d was handed over %d times; this delivery is number %d", m.Sequence(), n, m.Delivered())
		}
	}
	return h.seen.len()
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
	reaches(t, n, "everything is handed over", h.seen.len)
}

func TestNothingIsStrandedWhenCallersGo(t *testing.T) {
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
		calling.Go(func() { goAtRandom(ctx, t, sub, &h, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	for i := range total / 100 { // in bursts, so that callers wait in between
		natstest.Publish(t, r.js, fmt.Sprintf("s.%d", i), 100)
	}
	require.NoError(t, sub.Close(t.Context())) // one more way to go away while messages arrive
	stop()
	calling.Wait()
	require.Positive(t, h.seen.len())
	other := consume(t, subscribe(t, r.js, "S", "C"), func(_ context.Context, m *jetpull.Msg) error { h.add(t, m); return nil })
	h.all(t, total)
	r.ackPending(t, 0)
	other.end(t)
	require.Zero(t, libSubscriptions(nc), "no inbox is left")
}

// goAtRandom calls Fetch and AckNext with contexts that end soon.
func goAtRandom(ctx context.Context, t *testing.T, sub *jetpull.Subscription, h *history, rng *rand.Rand) {
	terms := [][]jetpull.Option{
		nil, nil,
		{jetpull.NoWait()},
		{jetpull.FillBatch()},
		{jetpull.Heartbeat(50 * time.Millisecond)},
		{jetpull.MaxBytes(60 + rng.IntN(500))},
		{jetpull.MaxWait(time.Millisecond + time.Duration(rng.IntN(int(10*time.Millisecond))))},
	}
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(int(3*time.Millisecond))))
		msgs, err := sub.Fetch(callCtx, 1+rng.IntN(20), terms[rng.IntN(len(terms))]...)
		if len(msgs) > 0 && err != nil {
			t.Errorf("%d messages and an error: %v", len(msgs), err)
		}
		if len(msgs) > 0 && rng.IntN(4) == 0 {
			if next, _ := msgs[0].AckNext(callCtx); next != nil {
				h.note(t, next)
			}
			h.add(t, msgs[0])
			msgs = msgs[1:]
		}
		h.note(t, msgs...)
		cancel()
	}
}

// late brings about n messages that arrive after their caller has gone: the server
// has sent them, the network holds them back, and the caller cancels.
func (w *world) late(n int, whileHeld func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	got := call(ctx, w.sub, n, jetpull.FillBatch(), jetpull.MaxWait(forever))
	pass(time.Second)
	w.model.Peer().Pause(true)
	w.publish("s.a", n)
	cancel()
	requireIs(w.t, receive(w.t, got, "end of the call").err, context.Canceled)
	whileHeld()
	w.model.Peer().Pause(false)
}

// TestALateMessageIsNotStranded: it goes to the next caller, or back to the server,
// whatever its Subscription does meanwhile.
func TestALateMessageIsNotStranded(t *testing.T) {
	nextCall := func(n int) func(*testing.T, *world) func() {
		return func(t *testing.T, w *world) func() {
			got := call(t.Context(), w.sub, n, jetpull.MaxWait(forever))
			pass(3 * time.Second) // its look goes unanswered, and it is in its long pull
			return func() {
				msgs := served(t, got, "the message, and no more")
				require.EqualValues(t, 1, msgs[0].Delivered(), "without a detour by the server")
				require.Zero(t, w.sub.Stats().HandedBack)
				ackAll(t, msgs...)
			}
		}
	}
	closing := func(wait time.Duration) func(*testing.T, *world) func() {
		return func(t *testing.T, w *world) func() {
			closed := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			go func() { closed <- w.sub.Close(ctx) }()
			pass(time.Second)
			if wait > time.Second {
				require.Empty(t, closed, "it waits for what is on the wire")
			}
			return func() {
				err := <-closed
				cancel()
				require.Equal(t, wait < time.Second, errors.Is(err, context.DeadlineExceeded))
			}
		}
	}
	for name, meanwhile := range map[string]func(*testing.T, *world) (then func()){
		"the next caller wants one":    nextCall(0),
		"the next caller wants five":   nextCall(5),
		"nobody calls":                 func(*testing.T, *world) func() { return func() {} },
		"Close":                        closing(time.Minute),
		"Close that is not waited for": closing(50 * time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{AckWait: forever}, func(t *testing.T, w *world) {
				var then func()
				w.late(1, func() { then = meanwhile(t, w) })
				then()
				pass(2 * time.Second)
				if w.consumer.State().NumAckPending == 0 {
					return
				}
				_, other := w.client()
				m := next(t, other, jetpull.NoWait())
				require.EqualValues(t, 2, m.Delivered())
				require.EqualValues(t, 1, w.sub.Stats().HandedBack)
				ackAll(t, m)
			})
		})
	}
}

func TestAckNoneKeepsLateMessagesForTheNextCall(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, w *world) {
		w.late(3, func() {})
		pass(time.Second)
		pulls := w.sub.Stats().Pulls
		require.EqualValues(t, 1, next(t, w.sub, jetpull.NoWait()).Sequence())
		require.EqualValues(t, 2, fetch(t, w.sub, 1)[0].Sequence())
		require.Equal(t, pulls, w.sub.Stats().Pulls, "what is kept needs no pull")
		require.NoError(t, w.sub.Close(t.Context()))
		require.EqualValues(t, 1, w.sub.Stats().Dropped, "the third was never handed over, and Close says so")
		require.Zero(t, w.sub.Stats().HandedBack)
	})
}

// TestAfterAnyStopNothingIsStranded: what the one that stops at its twentieth message
// has read ahead and not handed over is with another one within two seconds, though
// its handlers go on.
func TestAfterAnyStopNothingIsStranded(t *testing.T) {
	const messages = 1000
	consumes := func(ctx context.Context, w *world, take func(*jetpull.Msg) bool) error {
		return w.sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error { take(m); return nil },
			jetpull.Concurrency(3), jetpull.DrainTimeout(10*time.Second))
	}
	loops := func(ctx context.Context, w *world, take func(*jetpull.Msg) bool) (last error) {
		for m, err := range w.sub.Messages(ctx) {
			if err != nil {
				if !errors.Is(err, ctx.Err()) {
					last = err
				}
				continue
			}
			if stop := take(m); m.Ack() != nil || stop {
				break
			}
		}
		return last
	}
	ends := func(_ *world, cancel func()) { cancel() }
	closes := func(w *world, _ func()) { go func() { _ = w.sub.Close(context.Background()) }() }
	for _, tc := range []struct {
		name  string
		run   func(context.Context, *world, func(*jetpull.Msg) bool) error
		stop  func(*world, func())
		drain time.Duration // of what it handles at the stop
		is    error
	}{
		{"Consume, context ends", consumes, ends, 5 * time.Second, nil},
		{"Consume, context ends, DrainTimeout", consumes, ends, 20 * time.Second, jetpull.ErrDrainTimeout},
		{"Consume, Close", consumes, closes, 5 * time.Second, jetpull.ErrClosed},
		{"Messages, break", loops, func(*world, func()) {}, 0, nil},
		{"Messages, context ends", loops, ends, 5 * time.Second, nil},
		{"Messages, Close", loops, closes, 5 * time.Second, jetpull.ErrClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{AckWait: forever, MaxAckPending: -1}, func(t *testing.T, w *world) {
				w.publish("s.a", messages)
				var h history
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				at, ended := make(chan struct{}), make(chan error, 1)
				go func() {
					ended <- tc.run(ctx, w, func(m *jetpull.Msg) (stop bool) {
						n := h.add(t, m)
						if n == 20 {
							close(at)
						}
						if n >= 20 {
							pass(tc.drain)
						}
						return n == 20 && tc.drain == 0
					})
				}()
				<-at
				w.until(func() bool { s := w.sub.Stats(); return s.Buffered > 0 || tc.drain == 0 }, "messages are read ahead")
				tc.stop(w, cancel)
				_, sub := w.client()
				rest := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error { h.add(t, m); return nil })
				pass(2 * time.Second)
				require.Equal(t, messages, h.seen.len())
				if tc.drain > 0 {
					require.Empty(t, ended, "it waits for its handlers")
				}
				require.ErrorIs(t, receive(t, ended, "the end"), tc.is)
				w.settled()
				rest.end(t)
				pass(tc.drain) // handlers that went on have ended
			})
		})
	}
}

func TestAConnectionThatIsDrainedStrandsNothing(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{AckWait: forever, MaxAckPending: -1}, func(t *testing.T, w *world) {
		const messages = 500
		w.publish("s.a", messages)
		var first, rest history
		run := consume(t, w.sub, func(_ context.Context, m *jetpull.Msg) error { first.add(t, m); pass(5 * time.Millisecond); return nil })
		w.until(func() bool { return first.seen.len() >= 20 }, "twenty messages")
		require.NoError(t, w.nc.Drain())
		require.ErrorIs(t, receive(t, run.done, "end of Consume"), jetpull.ErrClosed)
		_, other := w.client()
		going := consume(t, other, func(_ context.Context, m *jetpull.Msg) error { rest.add(t, m); return nil })
		pass(2 * time.Second)
		handled := first.seen.len() + rest.seen.len()
		require.GreaterOrEqual(t, handled, messages-1, "its handler may have acknowledged when the connection was gone")
		require.LessOrEqual(t, handled, messages+1)
		going.end(t)
	})
}
