package jetpull_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// closing is Close in the background.
func (w *world) closing(ctx context.Context) <-chan result {
	return w.later(func() ([]*jetpull.Msg, error) { return nil, w.sub.Close(ctx) })
}

// Calls end at once; what is on the wire goes back, and the server has it before
// Close returns. With ack policy none there is no way back: it is counted.
func TestCloseHandsBackWhatIsOnTheWire(t *testing.T) {
	for name, policy := range map[string]jetstream.AckPolicy{"explicit": jetstream.AckExplicitPolicy, "none": jetstream.AckNonePolicy} {
		t.Run(name, at(jetstream.ConsumerConfig{AckPolicy: policy}, func(t *testing.T, w *world) {
			got := w.fetch(t.Context(), 3, jetpull.FillBatch(), jetpull.MaxWait(time.Minute))
			next := w.next(t.Context(), jetpull.MaxWait(time.Minute))
			stage.Pass(time.Second)
			w.Peer.Pause(true)
			w.Publish(4)
			closed := w.closing(t.Context())
			require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
			require.ErrorIs(t, (<-next).err, jetpull.ErrClosed)
			require.Empty(t, closed)
			w.Peer.Pause(false)
			require.NoError(t, (<-closed).err)
			require.Empty(t, w.C().Held())
			st := w.sub.Stats()
			require.EqualValues(t, 4, max(st.HandedBack, st.Dropped))
			require.Equal(t, name == "explicit", st.Dropped == 0)
		}))
	}
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
		consume := w.sub.Consume(t.Context(), nothing)
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

// Close does not wait for what keeps a call waiting, and gives up on a network that
// is gone.
func TestCloseOfACallThatCannotPull(t *testing.T) {
	for name, tt := range map[string]struct {
		hinder func(*world)
		most   time.Duration
	}{
		"backs off":    {func(w *world) { w.answer(503, "") }, 0},
		"disconnected": {(*world).disconnect, 0},
		"a black hole": {func(w *world) { w.Peer.Pause(true) }, 15 * time.Second},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			tt.hinder(w)
			got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
			stage.Pass(time.Second)
			start := time.Now()
			require.NoError(t, w.sub.Close(t.Context()))
			require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
			require.LessOrEqual(t, time.Since(start), tt.most)
			w.Peer.Pause(false)
		}))
	}
}

func TestCloseThatMayNotTakeLong(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		w.Peer.Pause(true)
		w.Publish(1)
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.sub.Close(c), context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, w.Elapsed())
		require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
		w.Peer.Pause(false)
		require.Equal(t, []int{1}, w.Acked("-NAK"), "the rest goes on by itself")
	})
}
