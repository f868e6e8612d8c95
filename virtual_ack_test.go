package jetpull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

func TestAckNextIsOneMessageOnTheWire(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(50)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		s.peer.ResetOps()
		for seq := uint64(2); seq <= 50; seq++ {
			m, err = m.AckNext(t.Context())
			require.NoError(t, err)
			require.Equal(t, seq, m.Sequence())
		}
		require.Len(t, s.ops("PUB"), 49)
		require.Empty(t, s.ops("SUB"))
		require.Len(t, s.acked("+NXT"), 49)
		require.True(t, s.got()[1].Next)
		require.JSONEq(t, `{"batch":1,"no_wait":true}`, string(s.got()[1].Body))
		require.EqualValues(t, 49, s.sub.Stats().Acks)
	})
}

func TestAckNextWaitsLikeNext(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(1)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		got := s.later(func() ([]*Msg, error) { return one(m.AckNext(t.Context())) })
		after(time.Second)
		require.Equal(t, []uint64{1}, s.acked("+NXT"))
		pulls := s.got()
		require.Len(t, pulls, 3, "a quick one, the one with the acknowledgement, the long one")
		require.False(t, pulls[2].Next)
		require.Equal(t, 4900*time.Millisecond, pulls[2].Req.Expires)
		s.publish(1)
		require.NoError(t, (<-got).err)

		// It is acknowledged although no next one comes, and only once.
		_, err = m.AckNext(t.Context())
		require.ErrorIs(t, err, jetstream.ErrMsgAlreadyAckd)
		s.publish(1)
		m, err = s.sub.Next(t.Context())
		require.NoError(t, err)
		_, err = m.AckNext(t.Context(), NoWait())
		require.ErrorIs(t, err, ErrNoMessages)
		require.ErrorIs(t, m.Ack(), jetstream.ErrMsgAlreadyAckd)
		require.Equal(t, []uint64{1, 3}, s.acked("+NXT"))
	})
}

func TestAckNextWhileDisconnected(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(1)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		s.peer.Refuse(true)
		s.peer.Cut()
		after(time.Millisecond)
		got := s.later(func() ([]*Msg, error) { return one(m.AckNext(t.Context(), MaxWait(10*time.Second))) })
		after(time.Second)
		s.publish(1)
		s.peer.Refuse(false)
		require.NoError(t, (<-got).err)
		require.Equal(t, []uint64{1}, s.acked("+ACK"), "the acknowledgement does not wait for the pull")
		require.Empty(t, s.acked("+NXT"))
	})
}

func TestAckNextThatCannotBeSent(t *testing.T) {
	conn := []nats.Option{nats.ReconnectBufSize(-1)}
	virtuallyOver(t, conn, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(1)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		s.peer.Refuse(true)
		s.peer.Cut()
		after(time.Millisecond)
		s.unaware()
		_, err = m.AckNext(t.Context())
		require.ErrorIs(t, err, nats.ErrReconnectBufExceeded)
		s.peer.Refuse(false)
		after(time.Second)
		require.NoError(t, m.Ack(), "it was not acknowledged, so it still can be")
		require.Equal(t, []uint64{1}, s.acked("+ACK"))
		require.EqualValues(t, 1, s.sub.Stats().Acks)
	})
}

func TestAckNextTakesOptions(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(2)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		_, err = m.AckNext(t.Context(), FillBatch())
		require.ErrorIs(t, err, ErrInvalidOption)
		_, err = m.AckNext(t.Context(), Priority(3))
		require.ErrorIs(t, err, ErrInvalidOption)
		_, err = m.AckNext(nil) //nolint:staticcheck // a nil context is what is tested
		require.ErrorIs(t, err, ErrInvalidOption)
		require.Empty(t, s.acked("+NXT"), "nothing was sent")
		_, err = m.AckNext(t.Context(), MaxBytes(1000))
		require.NoError(t, err)
		require.Equal(t, 1000, s.got()[1].Req.MaxBytes)
	})
}

func TestAckNoneHasNothingToAcknowledge(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, s *script) {
		s.publish(1)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		_, err = m.AckNext(t.Context())
		require.ErrorIs(t, err, ErrInvalidOption)
		require.ErrorContains(t, err, "AckNext")
		err = ConfirmAcks(t.Context(), m)
		require.ErrorIs(t, err, ErrInvalidOption)
		require.ErrorContains(t, err, "ConfirmAcks")
		require.NoError(t, m.InProgress())
		require.NoError(t, m.DoubleAck(t.Context()))
		require.ErrorIs(t, m.Nak(), jetstream.ErrMsgAlreadyAckd)
		synctest.Wait()
		require.Empty(t, s.acks)
	})
}

// fetch takes n messages.
func (s *script) fetch(n int) []*Msg {
	s.t.Helper()
	s.publish(n)
	var all []*Msg
	for len(all) < n {
		ms, err := s.sub.Fetch(s.t.Context(), n-len(all))
		require.NoError(s.t, err)
		all = append(all, ms...)
	}
	return all
}

func TestConfirmAcks(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		require.NoError(t, ConfirmAcks(t.Context()), "none is fine")
		ms := s.fetch(2500)
		s.peer.ResetOps()
		require.NoError(t, ConfirmAcks(t.Context(), ms...))
		require.Len(t, s.ops("PUB"), 2500)
		require.Len(t, s.ops("SUB"), 1)
		require.Len(t, s.acked("+ACK"), 2500)
		require.Zero(t, time.Since(s.start))
		require.EqualValues(t, 2500, s.sub.Stats().Acks)

		more := s.fetch(100)
		s.peer.ResetOps()
		require.NoError(t, ConfirmAcks(t.Context(), more...))
		require.Empty(t, s.ops("SUB"), "the inbox is used again")
		require.ErrorIs(t, more[0].Ack(), jetstream.ErrMsgAlreadyAckd)
	})
}

func TestConfirmAcksOfSeveralSubscriptions(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		other, err := Subscribe(t.Context(), s.js, "S", "C")
		require.NoError(t, err)
		ms := s.fetch(4)
		s.publish(3)
		others, err := other.Fetch(t.Context(), 3)
		require.NoError(t, err)
		ms = slices.Insert(ms, 2, others...)
		require.NoError(t, ConfirmAcks(t.Context(), ms...))
		require.Len(t, s.acked("+ACK"), 7)
		require.EqualValues(t, 4, s.sub.Stats().Acks)
		require.EqualValues(t, 3, other.Stats().Acks)
		require.NoError(t, other.Close(t.Context()))
	})
}

func TestConfirmAcksSendsAgainWhatIsLost(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		ms := s.fetch(10)
		seen := map[string]int{}
		s.peer.OnRequest("$JS.ACK.>", func(p *natstest.Peer, r natstest.Request) {
			seen[r.Subject]++
			if seen[r.Subject] > 1 || len(seen)%2 == 0 {
				p.Reply(r.Reply, nil)
			}
		})
		require.NoError(t, ConfirmAcks(t.Context(), ms...))
		require.Equal(t, time.Second, time.Since(s.start))
		again := 0
		for _, n := range seen {
			again += n - 1
		}
		require.Equal(t, 5, again, "only what was not confirmed")
	})
}

func TestConfirmAcksFailsForSome(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		ms := s.fetch(5)
		require.NoError(t, ms[1].Ack())
		lost, gone := ms[2].Reply(), ms[3].Reply()
		s.peer.OnRequest("$JS.ACK.>", func(p *natstest.Peer, r natstest.Request) {
			switch r.Subject {
			case lost:
			case gone:
				p.NoResponders(r.Reply)
			default:
				p.Reply(r.Reply, nil)
			}
		})
		err := ConfirmAcks(t.Context(), ms...)
		require.Equal(t, 5*time.Second, time.Since(s.start), "5 s where ctx has no deadline")
		joined, ok := err.(interface{ Unwrap() []error })
		require.True(t, ok)
		errs := joined.Unwrap()
		require.Len(t, errs, 3)
		for _, tt := range []struct {
			seq int
			is  []error
		}{
			{2, []error{jetstream.ErrMsgAlreadyAckd}},
			{3, []error{ErrTimeout, nats.ErrTimeout, context.DeadlineExceeded}},
			{4, []error{ErrNoResponders, nats.ErrNoResponders}},
		} {
			i := slices.IndexFunc(errs, func(e error) bool { return strings.Contains(e.Error(), fmt.Sprintf("stream sequence %d:", tt.seq)) })
			require.GreaterOrEqual(t, i, 0, "%v", err)
			for _, is := range tt.is {
				require.ErrorIs(t, errs[i], is)
			}
		}
		// Those can be acknowledged again, the others cannot.
		require.ErrorIs(t, ms[0].Ack(), jetstream.ErrMsgAlreadyAckd)
		require.ErrorIs(t, ms[1].Ack(), jetstream.ErrMsgAlreadyAckd)
		require.NoError(t, ms[2].Ack())
		require.NoError(t, ms[3].Nak())
	})
}

func TestConfirmAcksEndsWithItsContext(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		ms := s.fetch(3)
		s.peer.ConfirmAcks(false)
		ctx, cancel := context.WithCancel(t.Context())
		got := s.later(func() ([]*Msg, error) { return nil, ConfirmAcks(ctx, ms...) })
		after(1500 * time.Millisecond)
		cancel()
		r := <-got
		require.ErrorIs(t, r.err, context.Canceled)
		require.Equal(t, 1500*time.Millisecond, r.at)
		require.Len(t, s.acked("+ACK"), 6, "sent twice")
		// An inbox that may still get late confirmations is not used again.
		s.peer.ConfirmAcks(true)
		s.peer.ResetOps()
		require.NoError(t, ConfirmAcks(t.Context(), ms...))
		require.Len(t, s.ops("SUB"), 1)
	})
}

func TestConfirmAcksAfterClose(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		ms := s.fetch(5)
		require.NoError(t, ConfirmAcks(t.Context(), ms[:2]...))
		require.NoError(t, s.sub.Close(t.Context()))
		left := s.nc.NumSubscriptions()
		require.NoError(t, ConfirmAcks(t.Context(), ms[2:]...))
		require.Equal(t, left, s.nc.NumSubscriptions(), "nobody would use its inbox again")
		require.Len(t, s.acked("+ACK"), 5)
	})
}

func TestConfirmAcksRefuses(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		ms := s.fetch(1)
		for _, err := range []error{
			ConfirmAcks(t.Context(), ms[0], nil),
			ConfirmAcks(t.Context(), &Msg{}),
			ConfirmAcks(nil, ms[0]), //nolint:staticcheck // a nil context is what is tested
		} {
			require.ErrorIs(t, err, ErrInvalidOption)
		}
		require.Empty(t, s.acked("+ACK"), "nothing was sent")
		s.nc.Close()
		require.ErrorIs(t, ConfirmAcks(t.Context(), ms[0]), ErrClosed)
	})
}

func TestAcknowledgements(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		ms := s.fetch(8)
		require.NoError(t, ms[0].Ack())
		require.NoError(t, ms[1].Nak())
		require.NoError(t, ms[2].NakWithDelay(1500*time.Millisecond))
		require.NoError(t, ms[3].NakWithDelay(-1))
		require.NoError(t, ms[4].Term())
		require.NoError(t, ms[5].TermWithReason("no good"))
		require.NoError(t, ms[6].TermWithReason(""))
		for range 3 {
			require.NoError(t, ms[7].InProgress())
		}
		require.NoError(t, ms[7].DoubleAck(t.Context()))
		synctest.Wait()
		var bodies []string
		for _, a := range s.acks {
			bodies = append(bodies, string(a.Body))
		}
		require.Equal(t, []string{"+ACK", "-NAK", `-NAK {"delay":1500000000}`, "-NAK", "+TERM", "+TERM no good", "+TERM", "+WPI", "+WPI", "+WPI", "+ACK"}, bodies)
		for _, m := range ms {
			for _, err := range []error{
				m.Ack(), m.Nak(), m.NakWithDelay(1), m.Term(), m.TermWithReason("x"), m.InProgress(), m.DoubleAck(t.Context()),
			} {
				require.ErrorIs(t, err, jetstream.ErrMsgAlreadyAckd)
			}
		}
		st := s.sub.Stats()
		require.Equal(t, []uint64{2, 3, 3, 3}, []uint64{st.Acks, st.Naks, st.Terms, st.InProgress})
	})
}

func TestDoubleAckThatIsNotConfirmed(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		m := s.fetch(1)[0]
		s.peer.ConfirmAcks(false)
		err := m.DoubleAck(t.Context())
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 5*time.Second, time.Since(s.start))
		s.peer.ConfirmAcks(true)
		require.NoError(t, m.DoubleAck(t.Context()), "it can be tried again")
		m = s.fetch(1)[0]
		s.nc.Close()
		for _, err := range []error{m.Ack(), m.DoubleAck(t.Context()), m.InProgress()} {
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, err, nats.ErrConnectionClosed)
		}
		_, err = m.AckNext(t.Context())
		require.True(t, errors.Is(err, ErrClosed) && !errors.Is(err, jetstream.ErrMsgAlreadyAckd), "%v", err)
	})
}
