package jetpull_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// later runs f and returns what tells of its end.
func (w *world) closing(ctx context.Context) <-chan result {
	return w.later(func() ([]*jetpull.Msg, error) { return nil, w.sub.Close(ctx) })
}

func TestCloseHandsBackWhatIsOnTheWire(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.fetch(t.Context(), 3, jetpull.FillBatch(), jetpull.MaxWait(time.Minute))
		next := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		w.Peer.Pause(true)
		w.Publish(4)
		closed := w.closing(t.Context())
		require.ErrorIs(t, (<-got).err, jetpull.ErrClosed, "calls end at once")
		require.ErrorIs(t, (<-next).err, jetpull.ErrClosed)
		require.Empty(t, closed)
		w.Peer.Pause(false)
		require.NoError(t, (<-closed).err)
		require.Empty(t, w.C().Held(), "the server has them before Close returns")
		require.EqualValues(t, 4, w.sub.Stats().HandedBack)
	})
}

// With ack policy none there is no way back: what Close drops is counted.
func TestCloseCountsWhatItDrops(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, w *world) {
		got := w.fetch(t.Context(), 3, jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		w.Peer.Pause(true)
		w.Publish(1)
		closed := w.closing(t.Context())
		require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
		w.Peer.Pause(false)
		require.NoError(t, (<-closed).err)
		require.EqualValues(t, 1, w.sub.Stats().Dropped)
		require.Empty(t, w.Acks("-NAK"))
	})
}

func TestCloseOfAnIdleSubscription(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		m, err := w.sub.Next(t.Context())
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, w.sub.Close(t.Context()), "closing twice is fine")
		}
		require.Zero(t, w.Elapsed())
		_, next := w.sub.Next(t.Context())
		_, fetch := w.sub.Fetch(t.Context(), 2)
		_, ackNext := m.AckNext(t.Context())
		messages := error(nil)
		for _, err := range w.sub.Messages(t.Context()) {
			messages = err
		}
		consume := w.sub.Consume(t.Context(), func(context.Context, *jetpull.Msg) error { return nil })
		for _, err := range []error{next, fetch, ackNext, messages, consume} {
			require.ErrorIs(t, err, jetpull.ErrClosed)
		}
		require.NoError(t, m.Ack(), "what was handed over can still be acknowledged")
		require.Equal(t, []int{1}, w.Acked("+ACK"))
		require.Equal(t, 1, w.NC.NumSubscriptions(), "only the one of nats.go for requests is left")
	})
}

func TestCloseFromManyGoroutines(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var calls []<-chan result
		for range 10 {
			calls = append(calls, w.next(t.Context(), jetpull.MaxWait(time.Minute)))
		}
		for range 10 {
			calls = append(calls, w.closing(t.Context()))
		}
		for i, call := range calls {
			if r := <-call; i < 10 {
				require.ErrorIs(t, r.err, jetpull.ErrClosed)
			} else {
				require.NoError(t, r.err)
			}
		}
		require.Zero(t, w.Elapsed())
	})
}

// Close does not wait for what keeps a call waiting.
func TestCloseOfACallThatCannotPull(t *testing.T) {
	for name, hinder := range map[string]func(*world){
		"backs off":    func(w *world) { w.answer(503, "") },
		"disconnected": (*world).disconnect,
	} {
		t.Run(name, func(t *testing.T) {
			on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
				hinder(w)
				got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
				start := time.Now()
				require.NoError(t, w.sub.Close(t.Context()))
				require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
				require.Zero(t, time.Since(start))
			})
		})
	}
}

func TestCloseThatMayNotTakeLong(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		w.Peer.Pause(true)
		w.Publish(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, w.sub.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
		w.Peer.Pause(false)
		require.Equal(t, []int{1}, w.Acked("-NAK"), "the rest goes on by itself")
	})
}

func TestCloseInABlackHole(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		w.Peer.Pause(true)
		start := time.Now()
		require.NoError(t, w.sub.Close(t.Context()))
		require.LessOrEqual(t, time.Since(start), 15*time.Second, "it gives up on a network that is gone")
		require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
		w.Peer.Pause(false)
	})
}

func TestCallsThatRaceWithClose(t *testing.T) {
	for seed := range uint64(20) {
		server := model.Config{Seed: seed, Up: model.Delay{Max: time.Millisecond}, Down: model.Delay{Max: time.Millisecond}}
		onStage(t, stage.Config{Model: server}, func(t *testing.T, w *world) {
			w.Publish(100)
			var wg sync.WaitGroup
			var mu sync.Mutex
			handed := 0
			for i := range 16 {
				wg.Go(func() {
					for {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*time.Millisecond)
						ms, err := w.sub.Fetch(ctx, 1+i%3)
						cancel()
						mu.Lock()
						handed += len(ms)
						mu.Unlock()
						if errors.Is(err, jetpull.ErrClosed) {
							return
						}
					}
				})
			}
			stage.Pass(time.Duration(seed) * 300 * time.Microsecond)
			require.NoError(t, w.sub.Close(t.Context()))
			wg.Wait()
			synctest.Wait()
			require.Len(t, w.C().Held(), handed, "each message was handed over or handed back")
		})
	}
}
