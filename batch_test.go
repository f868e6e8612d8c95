package jetpull_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// batches notes the sequences of each batch.
type batches struct {
	mu  sync.Mutex
	all [][]uint64
}

func (b *batches) note(ms []*jetpull.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var seqs []uint64
	for _, m := range ms {
		seqs = append(seqs, m.Sequence())
	}
	b.all = append(b.all, seqs)
}

func (b *batches) get() [][]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([][]uint64(nil), b.all...)
}

// batching starts ConsumeBatch.
func (w *world) batching(n int, delay time.Duration, h jetpull.BatchHandler, opts ...jetpull.Option) (stop func() error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	opts = append(opts, jetpull.Logger(w.Logs.Logger()))
	go func() { done <- w.sub.ConsumeBatch(ctx, n, delay, h, opts...) }()
	return func() error {
		cancel()
		return <-done
	}
}

func TestConsumeBatch(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: 10 * time.Second}, func(t *testing.T, w *world) {
		var got batches
		stop := w.batching(4, 2*time.Second, func(_ ctx, ms []*jetpull.Msg) error {
			got.note(ms)
			stage.Pass(3 * time.Second)
			return nil
		})
		w.Publish(10)
		stage.Pass(time.Minute)
		require.Equal(t, [][]uint64{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}}, got.get())
		require.Empty(t, w.C().Unsettled())
		acks := w.Acks("+ACK")
		require.Len(t, acks, 10)
		for _, a := range acks {
			require.NotEmpty(t, a.Reply, "the server confirms it")
		}
		require.Equal(t, acks[0].At, acks[3].At, "those of a batch go together")

		w.Publish(2)
		stage.Pass(time.Second)
		require.Len(t, got.get(), 3, "the batch waits for its delay")
		require.NoError(t, stop())
		require.Equal(t, []uint64{11, 12}, got.get()[3], "or for the end")
		require.Empty(t, w.C().Unsettled())
	})
}

func TestConsumeBatchWithOutcomes(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		var got batches
		stop := w.batching(6, 0, func(_ ctx, ms []*jetpull.Msg) error {
			got.note(ms)
			failed := jetpull.BatchError{}
			for _, m := range ms {
				switch m.Sequence() {
				case 2:
					failed[m] = errBroken
				case 3:
					failed[m] = jetpull.Terminate("of no use", nil)
				case 4:
					require.NoError(t, m.NakWithDelay(time.Hour))
				}
			}
			return failed
		}, jetpull.MaxAttempts(2), jetpull.RetryDelays(time.Second), jetpull.DeadLetter("dead.letters"))
		w.Publish(6)
		stage.Pass(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []int{1, 5, 6}, w.Acked("+ACK"))
		require.ElementsMatch(t, []int{2, 3}, w.Acked("+TERM"))
		require.Equal(t, 1, w.Model.Messages("D"), "the second message, after two attempts")
		require.Equal(t, []uint64{4}, w.C().Unsettled())
	})
}

// A Middleware may acknowledge a message before its batch is handled.
func TestConsumeBatchOfWhatIsAcknowledged(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var got batches
		ackFirst := func(next jetpull.Handler) jetpull.Handler {
			return func(ctx context.Context, m *jetpull.Msg) error {
				if err := m.Ack(); err != nil {
					return err
				}
				return next(ctx, m)
			}
		}
		stop := w.batching(2, time.Second, func(_ ctx, ms []*jetpull.Msg) error { got.note(ms); return nil }, jetpull.Use(ackFirst))
		w.Publish(2)
		stage.Pass(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, [][]uint64{{1, 2}}, got.get())
		require.ElementsMatch(t, []int{1, 2}, w.Acked("+ACK"))
	})
}

func TestConsumeBatchThatFails(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errBroken },
		"panic": func() error { panic("batch") },
	} {
		t.Run(name, at(jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
			var got batches
			stop := w.batching(3, time.Second, func(_ ctx, ms []*jetpull.Msg) error {
				got.note(ms)
				if len(got.get()) == 1 {
					return fail()
				}
				return nil
			}, jetpull.RetryDelays(5*time.Second))
			w.Publish(3)
			stage.Pass(time.Minute)
			require.NoError(t, stop())
			require.Equal(t, [][]uint64{{1, 2, 3}, {1, 2, 3}}, got.get())
			require.Len(t, w.Acked("-NAK"), 3)
			require.Empty(t, w.C().Unsettled())
		}))
	}
}

// A message whose acknowledgement is not confirmed is handled again.
func TestConsumeBatchWhoseConfirmationsAreLost(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		var got batches
		var lost atomic.Bool
		lost.Store(true)
		w.LoseAcks(func(a stage.Ack) bool { return lost.Load() && a.Verb == "+ACK" })
		stop := w.batching(2, time.Second, func(_ ctx, ms []*jetpull.Msg) error { got.note(ms); return nil }, jetpull.RetryDelays(10*time.Second))
		w.Publish(2)
		stage.Pass(6 * time.Second)
		lost.Store(false)
		stage.Pass(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, [][]uint64{{1, 2}, {1, 2}}, got.get())
		require.Empty(t, w.C().Unsettled())
	})
}

func TestConsumeBatchRefuses(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxAckPending: 11}, func(t *testing.T, w *world) {
		nothing := func(ctx, []*jetpull.Msg) error { return nil }
		var none context.Context
		for name, err := range map[string]error{
			"handler":     w.sub.ConsumeBatch(t.Context(), 1, 0, nil),
			"n":           w.sub.ConsumeBatch(t.Context(), 0, 0, nothing),
			"3585":        w.sub.ConsumeBatch(t.Context(), 3585, 0, nothing),
			"maxDelay":    w.sub.ConsumeBatch(t.Context(), 1, -1, nothing),
			"ctx":         w.sub.ConsumeBatch(none, 1, 0, nothing),
			"Concurrency": w.sub.ConsumeBatch(t.Context(), 1, 0, nothing, jetpull.Concurrency(2)),
			"ManualAck":   w.sub.ConsumeBatch(t.Context(), 1, 0, nothing, jetpull.ManualAck()),
			"a batch":     w.sub.ConsumeBatch(t.Context(), 10, 0, nothing, jetpull.Prefetch(5)),
			"MaxAckPend":  w.sub.ConsumeBatch(t.Context(), 12, 0, nothing),
		} {
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
			require.ErrorContains(t, err, name)
		}
	})
}

// An open batch is handled when the call is to end, however that comes about, and no message is handled twice
// because it waited for others.
func TestABatchDoesNotOutliveItsCall(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var got batches
		done := make(chan error, 1)
		go func() {
			done <- w.sub.ConsumeBatch(t.Context(), 10, time.Hour, func(c ctx, ms []*jetpull.Msg) error { got.note(ms); return c.Err() })
		}()
		w.Publish(3)
		stage.Pass(time.Second)
		require.Empty(t, got.get())
		require.NoError(t, w.sub.Close(t.Context()))
		err := <-done
		require.ErrorIs(t, err, jetpull.ErrClosed)
		require.NotErrorIs(t, err, jetpull.ErrDrainTimeout)
		require.Len(t, got.get(), 1)
	})
	on(t, jetstream.ConsumerConfig{AckWait: time.Minute}, func(t *testing.T, w *world) {
		nothing := func(ctx, []*jetpull.Msg) error { return nil }
		err := w.sub.ConsumeBatch(t.Context(), 10, time.Second, nothing, jetpull.HandlerTimeout(time.Second))
		require.ErrorContains(t, err, "HandlerTimeout")
		var got batches
		stop := w.batching(1, 0, func(_ ctx, ms []*jetpull.Msg) error { got.note(ms); stage.Pass(3 * time.Second); return nil },
			jetpull.HandlerTimeout(2*time.Second), jetpull.RetryDelays(time.Hour))
		w.Publish(1)
		stage.Pass(10 * time.Second)
		require.NoError(t, stop())
		require.Len(t, got.get(), 1)
		require.Equal(t, []int{1}, w.Acked("-NAK"))
	})
}

// A batch that waited for one whose handler ignores its context is handled by nobody once the call has returned.
func TestNoBatchBeginsAfterItsCall(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: time.Minute}, func(t *testing.T, w *world) {
		var got batches
		stop := w.batching(4, 0, func(_ ctx, ms []*jetpull.Msg) error { got.note(ms); stage.Pass(10 * time.Second); return nil },
			jetpull.DrainTimeout(time.Second), jetpull.MaxAttempts(1))
		w.Publish(1)
		stage.Pass(time.Second)
		w.Publish(3)
		stage.Pass(time.Second)
		require.ErrorIs(t, stop(), jetpull.ErrDrainTimeout)
		stage.Pass(time.Minute)
		require.Equal(t, [][]uint64{{1}}, got.get())
		require.ElementsMatch(t, []int{2, 3, 4}, w.Acked("-NAK"))
		require.Empty(t, w.Acks("+TERM", 2, 3, 4), "no handler has had them")
	})
}
