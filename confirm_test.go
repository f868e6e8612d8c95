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

func TestAckNextAndConfirmAcksRefuse(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		m := w.take(1)[0]
		w.Publish(1)
		var none context.Context
		_, short := m.AckNext(t.Context(), jetpull.MaxWait(0))
		_, priority := m.AckNext(t.Context(), jetpull.Priority(3))
		_, ctx := m.AckNext(none)
		for _, err := range []error{
			short, priority, ctx, jetpull.ConfirmAcks(t.Context(), m, nil), jetpull.ConfirmAcks(t.Context(), &jetpull.Msg{}), jetpull.ConfirmAcks(none, m),
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
				p.NoResponders(r.Reply) // a 503 leaves no error after the confirmation has arrived
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
		// These can be acknowledged again. The others cannot.
		require.ErrorIs(t, ms[0].Ack(), jetstream.ErrMsgAlreadyAckd)
		require.ErrorIs(t, ms[1].Ack(), jetstream.ErrMsgAlreadyAckd)
		require.NoError(t, ms[2].Ack())
		require.NoError(t, ms[3].Nak())
	})
}

// A server that answers all requests at once after a while causes no slow consumer, and neither does a reconnect.
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

// A consumer that does not confirm does not delay the messages of other Subscriptions.
func TestConfirmAcksAsksAllSubscriptionsAtOnce(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		other := w.subscribe(w.JS)
		first := w.take(1)[0]
		w.Publish(1)
		second, err := other.Next(t.Context())
		require.NoError(t, err)
		w.LoseAcks(func(a stage.Ack) bool { return a.Seq == 1 })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err = jetpull.ConfirmAcks(ctx, first, second)
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.ErrorContains(t, err, "sequence 1:")
		require.NotContains(t, err.Error(), "sequence 2:")
	})
}
