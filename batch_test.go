package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// batches records the batches of a handler: their sequences, and when the handler began.
type batches struct {
	w   *world
	mu  sync.Mutex
	all []string
}

func (b *batches) note(ms []*jetpull.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var seqs []string
	for _, m := range ms {
		seqs = append(seqs, fmt.Sprint(m.Sequence()))
	}
	b.all = append(b.all, fmt.Sprintf("%s at %v", strings.Join(seqs, " "), b.w.Elapsed().Round(100*milli)))
}

func (b *batches) since(n int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all[n:])
}

// consumeBatch starts ConsumeBatch.
func (w *world) consumeBatch(n int, delay time.Duration, h jetpull.BatchHandler, opts ...jetpull.ConsumeOption) (*run, *batches) {
	w.t.Helper()
	b := &batches{w: w}
	return w.start(func(ctx context.Context, more ...jetpull.ConsumeOption) error {
		return w.sub.ConsumeBatch(ctx, n, delay, func(ctx context.Context, ms []*jetpull.Msg) error {
			b.note(ms)
			return h(ctx, ms)
		}, append(more, opts...)...)
	}), b
}

func all(context.Context, []*jetpull.Msg) error { return nil }

// A batch is handled when it is full, when its first message has waited for the delay, and when the call ends.
func TestConsumeBatch(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		r, b := w.consumeBatch(3, second, all)
		w.Publish(7)
		stage.Pass(500 * milli)
		require.Equal(t, []string{"1 2 3 at 0s", "4 5 6 at 0s"}, b.since(0))
		stage.Pass(second)
		require.Equal(t, []string{"7 at 1s"}, b.since(2))
		stage.Pass(500 * milli)
		w.Publish(1)
		stage.Pass(100 * milli)
		require.Len(t, b.since(0), 3)
		require.NoError(t, r.stop())
		require.Equal(t, []string{"8 at 2.1s"}, b.since(3))
		require.Empty(t, w.C().Unsettled())
		require.Equal(t, stage.UpTo(8), w.Acked("+ACK"))
		w.Publish(7)
		r, b = w.consumeBatch(3, time.Hour, all, jetpull.StopAfter(5))
		require.NoError(t, r.result())
		require.Equal(t, []string{"9 10 11 at 2.1s", "12 13 at 2.1s"}, b.since(0), "a batch waits for no message that StopAfter excludes")
	})
}

// One batch fills at a time, so that batches are as large as they can be.
func TestABatchFillsBeforeTheNext(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		r, b := w.consumeBatch(4, second, all, jetpull.Concurrency(3))
		w.Publish(12) // all workers begin
		stage.Pass(500 * milli)
		require.Len(t, b.since(0), 3)
		for range 5 {
			w.Publish(1)
			stage.Pass(100 * milli)
		}
		stage.Pass(second)
		require.Equal(t, []string{"13 14 15 16 at 800ms", "17 at 1.9s"}, b.since(3))
		require.NoError(t, r.stop())
	})
}

// Each message of a batch has its own result: failed messages are retried, given up or terminated, and the others are not handled again.
func TestMessagesOfABatchFail(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		r, b := w.consumeBatch(4, 100*milli, func(_ context.Context, ms []*jetpull.Msg) error {
			failed := jetpull.BatchError{}
			for _, m := range ms {
				switch m.Sequence() {
				case 1:
					failed[m] = errBroken
				case 2:
					failed[m] = jetpull.Terminate("no use", nil)
				case 3:
					if w.j.Note(3) == 1 {
						failed[m] = jetpull.Retry(3*second, nil)
					}
				}
			}
			return fmt.Errorf("load: %w", failed)
		}, jetpull.MaxAttempts(2), jetpull.DeadLetter("dead.s"), jetpull.RetryDelays(second))
		w.Publish(4)
		stage.Pass(10 * second)
		require.Equal(t, []string{"1 2 3 4 at 0s", "1 at 1.1s", "3 at 3.1s"}, b.since(0))
		require.NoError(t, r.stop())
		require.Equal(t, 1, w.Model.Messages("D"))
		require.Equal(t, "1", w.Model.Header("D", 1, jetpull.HeaderDeadSequence))
		require.Equal(t, []int{4, 3}, w.Acked("+ACK"))
		require.Empty(t, w.C().Unsettled())
		st := w.sub.Stats()
		require.Equal(t, []uint64{4, 2, 1, 1}, []uint64{st.Failed, st.Retried, st.DeadLettered, st.Terminated})
	})
}

// A batch whose handler panics, ends its goroutine, runs for too long or returns another error has failed as a whole. An error whose methods panic,
// such as a nil pointer, is an error too.
func TestABatchFailsAsAWhole(t *testing.T) {
	var none *jetpull.TerminateError
	for name, h := range map[string]jetpull.BatchHandler{
		"error":        func(context.Context, []*jetpull.Msg) error { return errBroken },
		"nil pointer":  func(context.Context, []*jetpull.Msg) error { return none },
		"nil pointers": func(_ context.Context, ms []*jetpull.Msg) error { return jetpull.BatchError{ms[0]: none, ms[1]: none} },
		"panic":        func(context.Context, []*jetpull.Msg) error { panic("broken") },
		"exit":         func(context.Context, []*jetpull.Msg) error { runtime.Goexit(); return nil },
		"time":         func(ctx context.Context, _ []*jetpull.Msg) error { <-ctx.Done(); return nil },
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			first := true
			r, b := w.consumeBatch(2, second, func(ctx context.Context, ms []*jetpull.Msg) error {
				if first {
					first = false
					return h(ctx, ms)
				}
				return nil
			}, jetpull.RetryDelays(second), jetpull.HandlerTimeout(second))
			w.Publish(2)
			stage.Pass(10 * second)
			require.Len(t, b.since(0), 2)
			require.NoError(t, r.stop())
			require.EqualValues(t, 2, w.sub.Stats().Retried)
			require.Empty(t, w.C().Unsettled())
		}))
	}
}

// Lost acknowledgements are repeated until they are confirmed. No message is handled again, repeats are not attempts, and the worker takes no other
// batch before.
func TestAcknowledgementsOfABatchAreRepeated(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: time.Minute}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		r, b := w.consumeBatch(2, second, all, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"))
		w.LoseAcks(func(a stage.Ack) bool { return a.StreamSeq == 2 })
		w.Publish(4)
		stage.Pass(20 * second)
		require.Equal(t, []string{"1 2 at 0s"}, b.since(0))
		w.LoseAcks(nil)
		stage.Pass(5 * second)
		require.Len(t, b.since(0), 2)
		require.NoError(t, r.stop())
		require.Empty(t, w.C().Unsettled())
		require.Zero(t, w.Model.Messages("D"))
	}, jetpull.DrainTimeout(time.Minute))
}

func TestConsumeBatchRefuses(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		for name, call := range map[string]func() error{
			"handler":  func() error { return w.sub.ConsumeBatch(t.Context(), 1, 0, nil) },
			"n":        func() error { return w.sub.ConsumeBatch(t.Context(), 0, 0, all) },
			"maxDelay": func() error { return w.sub.ConsumeBatch(t.Context(), 1, -1, all) },
			"Use": func() error {
				return w.sub.ConsumeBatch(t.Context(), 1, 0, all, jetpull.Use(func(h jetpull.Handler) jetpull.Handler { return h }))
			},
			"Prefetch": func() error { return w.sub.ConsumeBatch(t.Context(), 5, 0, all, jetpull.Prefetch(4)) },
		} {
			var wrong *jetpull.OptionError
			require.True(t, errors.As(call(), &wrong), name)
			require.Equal(t, name, wrong.Option)
		}
	})
}

// A message of a batch that is cancelled before the handler begins does not keep the others out of the batch.
func TestACancelledMessageKeepsNoOtherOutOfItsBatch(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		first := true
		cancel := func() error {
			_, err := w.NC.Request("jetpull.cancel.S.C", []byte("1"), second)
			return err
		}
		r, b := w.consumeBatch(2, second, func(context.Context, []*jetpull.Msg) error {
			if first {
				first = false
				return errBroken
			}
			return nil
		}, jetpull.RetryDelays(0), jetpull.Named("batches"), jetpull.MaxCrashes(2, &natstest.Bucket{Before: cancel}))
		w.Publish(2)
		stage.Pass(100 * milli)
		require.Equal(t, []string{"1 2 at 0s", "1 2 at 0s"}, b.since(0))
		require.NoError(t, r.stop())
	})
}
