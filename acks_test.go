package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
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

		// It is acknowledged although no next one comes, and only once.
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

func TestAckNextAndConfirmAcksRefuse(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		m := w.take(1)[0]
		w.Publish(1)
		var none context.Context
		_, fill := m.AckNext(t.Context(), jetpull.FillBatch())
		_, priority := m.AckNext(t.Context(), jetpull.Priority(3))
		_, ctx := m.AckNext(none)
		for _, err := range []error{
			fill, priority, ctx, jetpull.ConfirmAcks(t.Context(), m, nil), jetpull.ConfirmAcks(t.Context(), &jetpull.Msg{}), jetpull.ConfirmAcks(none, m),
		} {
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		}
		require.Empty(t, w.Acks("+ACK"), "nothing was sent")
		_, err := m.AckNext(t.Context(), jetpull.MaxBytes(1000))
		require.NoError(t, err)
		require.Equal(t, 1000, w.Pulls()[1].Req.MaxBytes)
	})
}

func TestConfirmAcks(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxAckPending: -1}, func(t *testing.T, w *world) {
		require.NoError(t, jetpull.ConfirmAcks(t.Context()), "none is fine")
		ms := w.take(2500)
		w.Peer.ResetOps()
		require.NoError(t, jetpull.ConfirmAcks(t.Context(), ms...))
		require.Len(t, w.Ops("PUB"), 2500)
		require.Len(t, w.Ops("SUB"), 3, "one for each thousand")
		require.Len(t, w.Ops("UNSUB"), 3)
		require.Len(t, w.Acks("+ACK"), 2500)
		require.Zero(t, w.Elapsed())
		require.EqualValues(t, 2500, w.sub.Stats().Acks)

		other := w.subscribe(w.JS)
		ms = w.take(4)
		w.Publish(3)
		others, err := other.Fetch(t.Context(), 3)
		require.NoError(t, err)
		w.Peer.ResetOps()
		require.NoError(t, jetpull.ConfirmAcks(t.Context(), slices.Insert(ms, 2, others...)...))
		require.Empty(t, w.C().Held())
		require.EqualValues(t, 2504, w.sub.Stats().Acks)
		require.EqualValues(t, 3, other.Stats().Acks)

		ms = w.take(5)
		require.NoError(t, jetpull.ConfirmAcks(t.Context(), ms[:2]...))
		require.NoError(t, w.sub.Close(t.Context()))
		left := w.NC.NumSubscriptions()
		require.NoError(t, jetpull.ConfirmAcks(t.Context(), ms[2:]...), "after Close")
		require.Equal(t, left, w.NC.NumSubscriptions())
	})
}

func TestConfirmAcksSendsAgainWhatIsLost(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		ms := w.take(10)
		w.LoseAcks(func(a stage.Ack) bool { return a.Seq%2 == 0 && time.Since(a.At) == 0 && w.Elapsed() == 0 })
		require.NoError(t, jetpull.ConfirmAcks(t.Context(), ms...))
		require.Equal(t, time.Second, w.Elapsed())
		require.Len(t, w.Acks("+ACK"), 15, "only what was not confirmed")

		ms = w.take(3)
		w.Deaf(true)
		ctx, cancel := context.WithCancel(t.Context())
		got := w.later(func() ([]*jetpull.Msg, error) { return nil, jetpull.ConfirmAcks(ctx, ms...) })
		stage.Pass(1500 * time.Millisecond)
		cancel()
		r := <-got
		require.ErrorIs(t, r.err, context.Canceled)
		require.Equal(t, 2500*time.Millisecond, r.at)
		require.Len(t, w.Acks("+ACK", 11, 12, 13), 6, "sent twice")
		w.Deaf(false)
		require.NoError(t, jetpull.ConfirmAcks(t.Context(), ms...))

		ms = w.take(2)
		w.Deaf(true)
		got = w.later(func() ([]*jetpull.Msg, error) { return nil, jetpull.ConfirmAcks(t.Context(), ms...) })
		begin := w.Elapsed()
		w.NC.Close()
		r = <-got
		require.ErrorIs(t, r.err, jetpull.ErrClosed)
		require.LessOrEqual(t, r.at-begin, time.Second)
	})
}

func TestConfirmAcksFailsForSome(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		ms := w.take(5)
		require.NoError(t, ms[1].Ack())
		lost, gone := ms[2].Reply(), ms[3].Reply()
		var tries atomic.Int64
		w.Peer.OnRequest("$JS.ACK.>", func(p *natstest.Peer, r natstest.Request) {
			switch r.Subject {
			case lost:
			case gone:
				tries.Add(1)
				p.NoResponders(r.Reply)
			default:
				p.NoResponders(r.Reply) // a 503 leaves no error once the confirmation is there
				p.Reply(r.Reply, nil)
			}
		})
		err := jetpull.ConfirmAcks(t.Context(), ms...)
		require.Equal(t, 5*time.Second, w.Elapsed(), "5 s where ctx has no deadline")
		joined, ok := err.(interface{ Unwrap() []error })
		require.True(t, ok)
		errs := joined.Unwrap()
		require.Len(t, errs, 3)
		for seq, want := range map[int][]error{
			2: {jetstream.ErrMsgAlreadyAckd},
			3: {jetpull.ErrTimeout, nats.ErrTimeout, context.DeadlineExceeded},
			4: {jetpull.ErrTimeout, jetpull.ErrNoResponders, nats.ErrNoResponders},
		} {
			i := slices.IndexFunc(errs, func(e error) bool { return strings.Contains(e.Error(), fmt.Sprintf("stream sequence %d:", seq)) })
			require.GreaterOrEqual(t, i, 0, "%v", err)
			for _, is := range want {
				require.ErrorIs(t, errs[i], is)
			}
		}
		require.GreaterOrEqual(t, tries.Load(), int64(5), "503 is retried")
		// Those can be acknowledged again, the others cannot.
		require.ErrorIs(t, ms[0].Ack(), jetstream.ErrMsgAlreadyAckd)
		require.ErrorIs(t, ms[1].Ack(), jetstream.ErrMsgAlreadyAckd)
		require.NoError(t, ms[2].Ack())
		require.NoError(t, ms[3].Nak())
	})
}

// A server that answers all at once after a while, and a connection that comes back, make no slow consumer.
func TestConfirmAcksTakesAllAnswers(t *testing.T) {
	for name, hold := range map[string]func(*world, bool){
		"silent": func(w *world, on bool) { w.Peer.Pause(on) },
		"away": func(w *world, on bool) {
			if on {
				w.disconnect()
			} else {
				w.reconnect()
			}
		},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			ms := w.take(1)
			var slow atomic.Int32
			w.NC.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				if errors.Is(err, nats.ErrSlowConsumer) {
					slow.Add(1)
				}
			})
			hold(w, true)
			got := w.later(func() ([]*jetpull.Msg, error) { return nil, jetpull.ConfirmAcks(t.Context(), ms...) })
			stage.Pass(4500 * time.Millisecond)
			hold(w, false)
			require.NoError(t, (<-got).err)
			require.Zero(t, slow.Load())
		}))
	}
}
