package jetpull_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// A handler that passes its messages on, as one for nats.go may: the goroutine that gets one settles it.
func TestManualAckLeavesMessagesToTheHandler(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: 10 * time.Second}, func(t *testing.T, w *world) {
		passed := make(chan *jetpull.Msg, 10)
		r := w.consume(func(_ ctx, m *jetpull.Msg) error {
			passed <- m
			return nil
		}, jetpull.ManualAck(), jetpull.Prefetch(3))
		w.Publish(5)
		stage.Pass(25 * time.Second)
		require.Len(t, passed, 3, "no more than the window")
		require.Empty(t, w.Acks("+ACK"))
		require.Equal(t, 3, w.sub.Stats().Outstanding+len(passed), "and no more is asked for")
		settle := []func(*jetpull.Msg) error{
			func(m *jetpull.Msg) error { return m.DoubleAck(t.Context()) },
			(*jetpull.Msg).Term,
			func(m *jetpull.Msg) error { return jetpull.ConfirmAcks(t.Context(), m) },
			(*jetpull.Msg).Ack,
			(*jetpull.Msg).Ack,
		}
		for _, f := range settle {
			require.NoError(t, f(<-passed))
			stage.Pass(time.Second)
		}
		require.Empty(t, passed, "each was handled once, though it took longer than AckWait")
		require.Empty(t, w.C().Unsettled())
		require.NoError(t, r.stop())
	})
}

func TestManualAckAtTheEnd(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var last *jetpull.Msg
		keep := func(_ ctx, m *jetpull.Msg) error {
			mu.Lock()
			defer mu.Unlock()
			last = m
			return nil
		}
		w.Publish(1)
		r := w.consume(keep, jetpull.ManualAck())
		stage.Pass(time.Second)
		ended := make(chan error, 1)
		go func() { ended <- r.stop() }()
		stage.Pass(5 * time.Second)
		require.Empty(t, ended, "it waits for what is not settled")
		require.NoError(t, last.Ack())
		require.NoError(t, <-ended)

		w.Publish(1)
		r = w.consume(keep, jetpull.ManualAck(), jetpull.DrainTimeout(time.Second))
		stage.Pass(time.Second)
		err := r.stop()
		require.ErrorIs(t, err, jetpull.ErrDrainTimeout)
		require.ErrorContains(t, err, "1 messages were left unsettled")
		require.NoError(t, last.Ack(), "it can still be settled")
		stage.Pass(time.Second)
		require.Empty(t, w.C().Unsettled())
	})
}

func TestStopAfterAsksForNoMore(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, w *world) []int{
		"consume": func(t *testing.T, w *world) []int {
			require.NoError(t, w.sub.Consume(t.Context(), taking(&w.j, 0), jetpull.StopAfter(20)))
			return w.j.All()
		},
		"consume, in parallel": func(t *testing.T, w *world) []int {
			require.NoError(t, w.sub.Consume(t.Context(), taking(&w.j, time.Second), jetpull.StopAfter(20), jetpull.Concurrency(8)))
			return w.j.All()
		},
		"messages": func(t *testing.T, w *world) (got []int) {
			for m, err := range w.sub.Messages(t.Context(), jetpull.StopAfter(20)) {
				require.NoError(t, err)
				require.NoError(t, m.Ack())
				got = append(got, int(m.Sequence()))
			}
			return got
		},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(7)
			time.AfterFunc(time.Minute, func() { w.Publish(50) })
			got := run(t, w)
			require.ElementsMatch(t, stage.UpTo(20), got)
			stage.Pass(time.Second)
			require.Len(t, w.Acks("+ACK"), 20)
			require.Empty(t, w.Acks("-NAK"), "nothing has to be handed back")
			require.Len(t, w.C().Unsettled(), 37, "what was not delivered")
			m, err := w.sub.Next(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 21, m.Sequence())
			require.NoError(t, m.Ack())
		}))
	}
}

// A message that the server redelivers after an error is handled again, and counts again.
func TestStopAfterCountsWhatFailed(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(3)
		failing := func(ctx context.Context, m *jetpull.Msg) error {
			if m.Sequence() == 1 && m.Delivered() == 1 {
				return errCause
			}
			return taking(&w.j, 0)(ctx, m)
		}
		require.NoError(t, w.sub.Consume(t.Context(), failing, jetpull.StopAfter(3), jetpull.RetryDelays(time.Hour)))
		require.Equal(t, []int{2, 3}, w.j.All())
	})
}
