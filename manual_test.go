package jetpull_test

import (
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
