package jetpull_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// take publishes n messages and fetches them.
func (w *world) take(n int) (all []*jetpull.Msg) {
	w.t.Helper()
	w.Publish(n)
	for len(all) < n {
		ms, err := w.sub.Fetch(w.t.Context(), n-len(all))
		require.NoError(w.t, err)
		all = append(all, ms...)
	}
	return all
}

func TestAcknowledgements(t *testing.T) {
	cut := "+TERM status 500: " + strings.Repeat("x", 1012)
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			call func(*jetpull.Msg) error
			want []string
		}{
			{func(m *jetpull.Msg) error { return m.Ack() }, []string{"+ACK"}},
			{func(m *jetpull.Msg) error { return m.NakWithDelay(90 * time.Minute) }, []string{`-NAK {"delay":5400000000000}`}},
			{func(m *jetpull.Msg) error { return m.Term() }, []string{"+TERM"}},
			{func(m *jetpull.Msg) error { return m.TermWithReason("no good") }, []string{"+TERM no good"}},
			{func(m *jetpull.Msg) error { return m.TermWithReason("") }, []string{"+TERM"}},
			{func(m *jetpull.Msg) error { return m.TermWithReason(tooLong) }, []string{cut}},
			{func(m *jetpull.Msg) error {
				require.NoError(t, m.InProgress())
				require.NoError(t, m.InProgress())
				return m.DoubleAck(t.Context())
			}, []string{"+WPI", "+WPI", "+ACK"}},
			{func(m *jetpull.Msg) error { return jetpull.ConfirmAcks(t.Context(), m) }, []string{"+ACK"}},
			{func(m *jetpull.Msg) error { return m.Nak() }, []string{"-NAK"}},
			{func(m *jetpull.Msg) error { return m.NakWithDelay(-1) }, []string{"-NAK"}},
		} {
			w.Publish(1)
			m, err := w.sub.Next(t.Context())
			require.NoError(t, err)
			w.Peer.ResetOps()
			require.NoError(t, tt.call(m))
			var got []string
			for _, op := range w.Ops("PUB") {
				if op.Subject == m.Reply() {
					got = append(got, string(op.Body))
				}
			}
			require.Equal(t, tt.want, got)
			for _, err := range []error{
				m.Ack(), m.Nak(), m.NakWithDelay(1), m.Term(), m.TermWithReason("x"), m.InProgress(), m.DoubleAck(t.Context()),
			} {
				require.ErrorIs(t, err, jetstream.ErrMsgAlreadyAckd)
			}
		}
		st := w.sub.Stats()
		require.Equal(t, []uint64{3, 3, 4, 2}, []uint64{st.Acks, st.Naks, st.Terms, st.InProgress})
	})
}

func TestDoubleAckThatIsNotConfirmed(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		m := w.take(1)[0]
		w.Deaf(true)
		require.ErrorIs(t, m.DoubleAck(t.Context()), jetpull.ErrTimeout)
		require.Equal(t, 5*time.Second, w.Elapsed())
		w.Deaf(false)
		require.NoError(t, m.DoubleAck(t.Context()), "it can be tried again")
		m = w.take(1)[0]
		w.NC.Close()
		_, ackNext := m.AckNext(t.Context())
		for _, err := range []error{m.Ack(), m.DoubleAck(t.Context()), m.InProgress(), jetpull.ConfirmAcks(t.Context(), m), ackNext} {
			require.ErrorIs(t, err, jetpull.ErrClosed)
			require.NotErrorIs(t, err, jetstream.ErrMsgAlreadyAckd)
		}
	})
}

func TestAckNoneHasNothingToAcknowledge(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, w *world) {
		m := w.take(1)[0]
		_, err := m.AckNext(t.Context())
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		require.ErrorContains(t, err, "AckNext")
		err = jetpull.ConfirmAcks(t.Context(), m)
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		require.ErrorContains(t, err, "ConfirmAcks")
		require.NoError(t, m.InProgress())
		require.NoError(t, m.DoubleAck(t.Context()))
		require.ErrorIs(t, m.Nak(), jetstream.ErrMsgAlreadyAckd)
		for _, verb := range []string{"+ACK", "-NAK", "+WPI"} {
			require.Empty(t, w.Acks(verb))
		}
	})
}

func TestAckNextWaitsLikeNext(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		m := w.take(1)[0]
		w.disconnect()
		got := w.later(func() ([]*jetpull.Msg, error) { return one(m.AckNext(t.Context(), jetpull.MaxWait(10*time.Second))) })
		stage.Pass(time.Second)
		w.Publish(1)
		w.reconnect()
		require.NoError(t, (<-got).err)
		require.Equal(t, []int{1}, w.Acked("+ACK"), "the acknowledgement does not wait for the pull")
		_, err := m.AckNext(t.Context())
		require.ErrorIs(t, err, jetstream.ErrMsgAlreadyAckd)

		// The message is acknowledged although no next one arrives, and only once.
		m = w.take(1)[0]
		_, err = m.AckNext(t.Context(), jetpull.NoWait())
		require.ErrorIs(t, err, jetpull.ErrNoMessages)
		require.ErrorIs(t, m.Ack(), jetstream.ErrMsgAlreadyAckd)
		require.Equal(t, []int{1, 3}, w.Acked("+ACK"))
		require.EqualValues(t, 2, w.sub.Stats().Acks)
		m = w.take(1)[0]
		_, err = m.AckNext(ended(t))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []int{1, 3, 4}, w.Acked("+ACK"), "its context ends the pull, not the acknowledgement")
	})
}

// A message that the user keeps holds its own memory, but not that of messages that arrived with it.
func TestARetainedMessageHoldsNoOthers(t *testing.T) {
	for name, msg := range map[string]struct {
		header nats.Header
		body   string
	}{
		"payload": {nil, fmt.Sprintf("%02000d", 1)},
		"headers": {nats.Header{"Large": {fmt.Sprintf("%02000d", 1)}}, ""},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{MaxAckPending: -1}, func(t *testing.T, w *world) {
			const messages, every = 6400, 64
			for range messages {
				w.PublishTo("s.a", msg.header, msg.body)
			}
			var kept []*jetpull.Msg
			for got := 0; got < messages; {
				ms, err := w.sub.Fetch(t.Context(), 640)
				require.NoError(t, err)
				for _, m := range ms {
					require.NoError(t, m.Ack())
					if got++; got%every == 0 {
						kept = append(kept, m)
					}
				}
			}
			require.NoError(t, w.sub.Close(t.Context()))
			n, with := len(kept), heap()
			runtime.KeepAlive(kept)
			require.Less(t, with-heap(), n*10_000, "bytes for %d messages that were kept", n)
		}))
	}
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
