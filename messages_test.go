package jetpull

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestMessagesYieldsInOrder(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(200)
		var got []int
		for m, err := range s.sub.Messages(t.Context()) {
			require.NoError(t, err)
			got = append(got, int(m.Sequence()))
			require.NoError(t, m.Ack())
			if len(got) == 200 {
				break
			}
		}
		synctest.Wait()
		require.Equal(t, upTo(200), got)
		require.Equal(t, 200, s.ackedCount())
		require.Zero(t, s.unsettled())
		require.LessOrEqual(t, s.pullCount(), 40, "read ahead, not one by one")
		require.Zero(t, s.sub.Stats().Outstanding)
	})
}

// TestMessagesBreakHandsBack: whatever way the loop ends, what it did not get
// goes back at once, and the message that it is at stays its own.
func TestMessagesBreakHandsBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		loop func(*testing.T, *stage, *journal)
	}{
		{"break", func(_ *testing.T, s *stage, j *journal) {
			for m := range s.sub.Messages(s.t.Context(), Prefetch(30)) {
				synctest.Wait()
				if j.note(m); j.len() == 5 {
					break
				}
				_ = m.Ack()
			}
		}},
		{"panic", func(t *testing.T, s *stage, j *journal) {
			defer func() { require.Equal(t, "loop", recover()) }()
			for m := range s.sub.Messages(s.t.Context(), Prefetch(30)) {
				synctest.Wait()
				if j.note(m); j.len() == 5 {
					panic("loop")
				}
				_ = m.Ack()
			}
		}},
		{"context", func(t *testing.T, s *stage, j *journal) {
			ctx, cancel := context.WithCancel(s.t.Context())
			defer cancel()
			for m, err := range s.sub.Messages(ctx, Prefetch(30)) {
				require.NoError(t, err, "the loop ends quietly")
				synctest.Wait()
				if j.note(m); j.len() == 5 {
					cancel()
					continue
				}
				_ = m.Ack()
			}
		}},
		{"close", func(t *testing.T, s *stage, j *journal) {
			var last error
			for m, err := range s.sub.Messages(s.t.Context(), Prefetch(30)) {
				if err != nil {
					require.Nil(t, m)
					require.NoError(t, last, "one error, and it is the last")
					last = err
					continue
				}
				synctest.Wait()
				if j.note(m); j.len() == 5 {
					require.NoError(t, s.sub.Close(s.t.Context()))
					continue
				}
				_ = m.Ack()
			}
			require.ErrorIs(t, last, ErrClosed)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, s *stage) {
				s.publish(100)
				var j journal
				start := time.Now()
				tc.loop(t, s, &j)
				synctest.Wait()
				require.Zero(t, time.Since(start), "at once")
				require.Equal(t, upTo(5), j.all())
				require.Equal(t, 4, s.ackedCount())
				s.do(func() {
					require.Len(t, s.pending, 1, "the fifth is the caller's; all else went back")
					require.NotNil(t, s.pending[5])
				})
				require.Positive(t, s.count("-NAK", 0))
				require.Zero(t, s.count("-NAK", 5))
			})
		})
	}
}

func TestMessagesKeepsAliveWhatTheLoopIsAt(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second}, func(t *testing.T, s *stage) {
		s.publish(6)
		var j journal
		for m, err := range s.sub.Messages(t.Context()) {
			require.NoError(t, err)
			j.note(m)
			<-time.After(7 * time.Second)
			require.NoError(t, m.Ack())
			if j.len() == 6 {
				break
			}
		}
		pass(time.Minute)
		require.Equal(t, upTo(6), j.all(), "none was delivered again")
		require.Positive(t, s.count("+WPI", 1))
		require.Positive(t, s.count("+WPI", 6))
	})
}

func TestMessagesDoesNotKeepAliveWhatItHasPassed(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second}, func(t *testing.T, s *stage) {
		s.publish(2)
		times := 0
		for m, err := range s.sub.Messages(t.Context()) {
			require.NoError(t, err)
			if m.Sequence() == 1 {
				if times++; times == 1 {
					continue // forgotten
				}
			}
			require.NoError(t, m.Ack())
			if times == 2 {
				break
			}
		}
		require.Zero(t, s.count("+WPI", 1))
	})
}

func TestMessagesEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*stage)
		is   error
	}{
		{"consumer deleted", func(s *stage) { s.answer(503, ""); s.endAll(409, "Consumer Deleted") }, ErrConsumerDeleted},
		{"refused", func(s *stage) { s.answer(400, "Bad Request"); s.endAll(408, "Request Timeout") }, ErrBadRequest},
		{"connection closed", func(s *stage) { s.nc.Close() }, nats.ErrConnectionClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				s.publish(3)
				var errs []error
				messages := 0
				time.AfterFunc(time.Second, func() { tc.end(s) })
				for m, err := range s.sub.Messages(t.Context()) {
					if err != nil {
						errs = append(errs, err)
						continue
					}
					messages++
					require.NoError(t, m.Ack())
				}
				require.Equal(t, 3, messages)
				require.Len(t, errs, 1)
				require.ErrorIs(t, errs[0], tc.is)
			})
		})
	}
}

func TestMessagesWaitsOutDisturbances(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		disturb := []func(){
			func() { s.peer.Cut(); s.forgetAll() },
			func() { s.endAll(409, "Leadership Change") },
			func() { s.endAll(409, "Server Shutdown") },
			s.forgetAll,
			func() { s.answer(503, ""); s.endAll(503, ""); time.AfterFunc(3*time.Second, s.relent) },
			func() { s.answer(503, ""); s.endAll(409, "Consumer Deleted"); time.AfterFunc(time.Minute, s.relent) },
		}
		s.publish(1)
		n := 0
		for m, err := range s.sub.Messages(t.Context(), AwaitConsumer()) {
			require.NoError(t, err)
			require.NoError(t, m.Ack())
			if n == len(disturb) {
				break
			}
			<-time.After(time.Second)
			disturb[n]()
			n++
			s.publish(1)
		}
		synctest.Wait()
		require.Equal(t, len(disturb)+1, s.ackedCount())
	})
}

func TestMessagesBadInput(t *testing.T) {
	nothing := func(context.Context, *Msg) error { return nil }
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.peer.ResetOps()
		for name, opt := range map[string]Option{
			"Prefetch": Prefetch(0), "PrefetchBytes": PrefetchBytes(-1), "Concurrency": Concurrency(2),
			"RetryDelays": RetryDelays(1), "MaxAttempts": MaxAttempts(1), "DeadLetter": DeadLetter("d"),
			"DrainTimeout": DrainTimeout(1), "OnError": OnError(func(error) {}), "FillBatch": FillBatch(), "MaxWait": MaxWait(time.Second),
			"OrderedBy": OrderedBy((*Msg).Subject), "Heartbeat": Heartbeat(time.Hour),
		} {
			var errs []error
			for m, err := range s.sub.Messages(t.Context(), opt) {
				require.Nil(t, m)
				errs = append(errs, err)
			}
			require.Len(t, errs, 1, name)
			require.ErrorIs(t, errs[0], ErrInvalidOption)
			require.ErrorContains(t, errs[0], name)
		}
		synctest.Wait()
		require.Empty(t, s.peer.Ops(), "nothing was sent")
		require.NoError(t, s.sub.Close(t.Context()))
		closed := false
		for _, err := range s.sub.Messages(t.Context()) {
			closed = errors.Is(err, ErrClosed)
		}
		require.True(t, closed, "after Close")
		require.ErrorIs(t, s.sub.Consume(t.Context(), nothing), ErrClosed)
	})
}

func TestMessagesWithAnEndedContext(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range s.sub.Messages(ctx) {
			t.Error("a step of a loop whose context has ended")
		}
		require.Zero(t, s.pullCount())
		var none context.Context
		for _, err := range s.sub.Messages(none) {
			require.ErrorIs(t, err, ErrInvalidOption)
		}
	})
}

func TestMessagesAckNone(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, s *stage) {
		s.publish(50)
		n := 0
		for m, err := range s.sub.Messages(t.Context(), Prefetch(20)) {
			require.NoError(t, err)
			require.NoError(t, m.Ack())
			if n++; n == 10 {
				break
			}
		}
		synctest.Wait()
		require.Zero(t, s.sub.Stats().Dropped)
		for m, err := range s.sub.Messages(t.Context(), Prefetch(20)) {
			require.NoError(t, err)
			require.EqualValues(t, n+1, m.Sequence(), "what the first loop did not get waits for the next")
			if n++; n == 30 {
				break
			}
		}
		require.NoError(t, s.sub.Close(t.Context()))
		require.Empty(t, s.acks)
		require.EqualValues(t, 50-30-s.left(), s.sub.Stats().Dropped, "what nobody got is counted")
	})
}

func TestMessagesTwiceOnOneSequence(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(6)
		all := s.sub.Messages(t.Context())
		for want := range 6 {
			for m, err := range all {
				require.NoError(t, err)
				require.NoError(t, m.DoubleAck(t.Context()))
				require.EqualValues(t, want+1, m.Sequence(), "handed back, and first in line for the next loop")
				break
			}
			synctest.Wait()
		}
		require.Equal(t, 6, s.ackedCount())
	})
}
