package jetpull

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

func TestCancelBeforeACall(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.sub.Next(ctx)
		require.ErrorIs(t, err, context.Canceled)
		late, cancel := context.WithTimeout(t.Context(), -1)
		defer cancel()
		_, err = s.sub.Fetch(late, 5)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrTimeout)
		require.Empty(t, s.got(), "nothing is sent")
	})
}

func TestCancelDuringACall(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		ctx, cancel := context.WithCancel(t.Context())
		got := s.next(ctx, MaxWait(time.Minute))
		after(time.Second)
		inbox := s.got()[1].Reply
		require.True(t, s.peer.HasInterest(inbox))
		cancel()
		r := <-got
		require.ErrorIs(t, r.err, context.Canceled)
		require.Equal(t, time.Second, r.at)
		synctest.Wait()
		require.False(t, s.peer.HasInterest(inbox), "unsubscribed without any time passing")
		s.publish(1)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err, "the message was not sent to the one that left")
		require.EqualValues(t, 1, m.Sequence())
		require.Empty(t, s.acked("-NAK"))
	})
}

func TestCancelWithAMessageOnTheWire(t *testing.T) {
	for _, then := range []string{"nobody waits", "another waits"} {
		t.Run(then, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
				ctx, cancel := context.WithCancel(t.Context())
				got := s.next(ctx, MaxWait(time.Minute))
				after(time.Second)
				s.peer.Pause(true)
				s.publish(1)
				cancel()
				require.ErrorIs(t, (<-got).err, context.Canceled)
				var other <-chan result
				if then == "another waits" {
					other = s.next(t.Context(), MaxWait(time.Minute))
				}
				s.peer.Pause(false)
				if other == nil {
					require.Equal(t, []uint64{1}, s.acked("-NAK"))
					return
				}
				r := <-other
				require.NoError(t, r.err)
				require.EqualValues(t, 1, r.ms[0].Sequence())
				require.Empty(t, s.acked("-NAK"))
			})
		})
	}
}

func TestCancelAfterAPartOfABatch(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(2)
		ctx, cancel := context.WithCancel(t.Context())
		got := s.later(func() ([]*Msg, error) { return s.sub.Fetch(ctx, 5, FillBatch(), MaxWait(time.Minute)) })
		after(time.Second)
		cancel()
		r := <-got
		require.NoError(t, r.err, "messages and an error are never returned together")
		require.Len(t, r.ms, 2)
		require.Empty(t, s.acked("-NAK"))
	})
}

func TestAckNoneKeepsWhatComesLate(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, s *script) {
		ctx, cancel := context.WithCancel(t.Context())
		got := s.next(ctx, MaxWait(time.Minute))
		s.peer.Pause(true)
		s.publish(1)
		cancel()
		require.ErrorIs(t, (<-got).err, context.Canceled)
		s.peer.Pause(false)
		synctest.Wait()
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, m.Sequence())
		require.NoError(t, m.Ack())
		require.Empty(t, s.acked("+ACK"))
		require.Zero(t, s.sub.Stats().Dropped)
	})
}

func TestCloseHandsBackWhatIsOnTheWire(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		got := s.later(func() ([]*Msg, error) { return s.sub.Fetch(t.Context(), 10, FillBatch(), MaxWait(time.Minute)) })
		next := s.next(t.Context(), MaxWait(time.Minute))
		after(time.Second)
		s.peer.Pause(true)
		s.publish(4)
		s.peer.OnAck(func(_ *natstest.Peer, a natstest.Ack) {
			<-time.After(time.Second) // a slow server
			s.mu.Lock()
			defer s.mu.Unlock()
			s.acks = append(s.acks, a)
		})
		closed := make(chan error)
		go func() { closed <- s.sub.Close(t.Context()) }()
		synctest.Wait()
		require.ErrorIs(t, (<-got).err, ErrClosed, "calls end at once")
		require.ErrorIs(t, (<-next).err, ErrClosed)
		require.Empty(t, closed)
		s.peer.Pause(false)
		require.NoError(t, <-closed)
		s.mu.Lock()
		acks := len(s.acks)
		s.mu.Unlock()
		require.Equal(t, 4, acks, "the server has them before Close returns")
		require.Len(t, s.acked("-NAK"), 4)
		require.EqualValues(t, 4, s.sub.Stats().HandedBack)
	})
}

func TestCloseOfAnIdleSubscription(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(1)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, s.sub.Close(t.Context()), "closing twice is fine")
		}
		require.Zero(t, time.Since(s.start))
		_, err = s.sub.Next(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		_, err = s.sub.Fetch(t.Context(), 2)
		require.ErrorIs(t, err, ErrClosed)
		_, err = m.AckNext(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, m.Ack(), "what was handed over can still be acknowledged")
		require.Equal(t, []uint64{1}, s.acked("+ACK"))
		require.Equal(t, 1, s.nc.NumSubscriptions(), "only the one of nats.go for requests is left")
	})
}

func TestCloseFromManyGoroutines(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		var calls []<-chan result
		for range 10 {
			calls = append(calls, s.next(t.Context(), MaxWait(time.Minute)))
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := s.sub.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, call := range calls {
			require.ErrorIs(t, (<-call).err, ErrClosed)
		}
		require.Zero(t, time.Since(s.start))
	})
}

func TestCloseWhileACallBacksOffOrIsDisconnected(t *testing.T) {
	for _, why := range []string{"backs off", "disconnected"} {
		t.Run(why, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
				s.answers(func(p natstest.Pull) bool { return s.peer.NoResponders(p.Reply) })
				if why == "disconnected" {
					s.peer.Refuse(true)
					s.peer.Cut()
					after(time.Millisecond)
				}
				got := s.next(t.Context(), MaxWait(time.Minute))
				start := time.Now()
				require.NoError(t, s.sub.Close(t.Context()))
				require.ErrorIs(t, (<-got).err, ErrClosed)
				require.Zero(t, time.Since(start))
			})
		})
	}
}

func TestCloseThatMayNotTakeLong(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		got := s.next(t.Context(), MaxWait(time.Minute))
		after(time.Second)
		s.peer.Pause(true)
		s.publish(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := s.sub.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, (<-got).err, ErrClosed)
		// The rest goes on by itself.
		s.peer.Pause(false)
		require.Equal(t, []uint64{1}, s.acked("-NAK"))
	})
}

func TestCloseInABlackHole(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		got := s.next(t.Context(), MaxWait(time.Minute))
		after(time.Second)
		s.peer.Pause(true)
		start := time.Now()
		require.NoError(t, s.sub.Close(t.Context()))
		require.LessOrEqual(t, time.Since(start), 15*time.Second, "it gives up on a network that is gone")
		require.ErrorIs(t, (<-got).err, ErrClosed)
		s.peer.Pause(false)
	})
}

func TestCallsThatRaceWithClose(t *testing.T) {
	for range 20 {
		virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
			s.publish(100)
			var wg sync.WaitGroup
			var mu sync.Mutex
			handed := 0
			for i := range 16 {
				wg.Go(func() {
					for {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*time.Millisecond)
						ms, err := s.sub.Fetch(ctx, 1+i%3)
						cancel()
						mu.Lock()
						handed += len(ms)
						mu.Unlock()
						if errors.Is(err, ErrClosed) {
							return
						}
					}
				})
			}
			require.NoError(t, s.sub.Close(t.Context()))
			wg.Wait()
			s.mu.Lock()
			delivered := int(s.seq)
			s.mu.Unlock()
			require.Equal(t, delivered, handed+len(s.acked("-NAK")), "each message was handed over or handed back")
		})
	}
}
