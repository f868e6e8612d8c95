package jetpull

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

func TestALostReply(t *testing.T) {
	for _, phase := range []string{"quick", "long"} {
		t.Run(phase, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
				lost := false
				s.answers(func(p natstest.Pull) bool {
					if !lost && (p.Req.Expires > 0) == (phase == "long") {
						lost = true
						return true
					}
					return false
				})
				got := s.next(t.Context(), MaxWait(20*time.Second), Heartbeat(2*time.Second))
				after(10 * time.Second)
				s.publish(1)
				r := <-got
				require.NoError(t, r.err)
				require.Equal(t, 10*time.Second, r.at)
				require.True(t, lost)
				require.EqualValues(t, 1, s.sub.Stats().Silent)
			})
		})
	}
}

// Each way in which a server ends a pull without a word.
func TestSilentEndings(t *testing.T) {
	t.Run("batch filled", func(t *testing.T) {
		virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
			s.publish(5)
			ms, err := s.sub.Fetch(t.Context(), 5)
			require.NoError(t, err)
			require.Len(t, ms, 5)
			require.Zero(t, time.Since(s.start))
			require.Zero(t, s.sub.Stats().Silent)
		})
	})
	t.Run("max_bytes used up exactly", func(t *testing.T) {
		virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
			s.publish(1)
			m, err := s.sub.Next(t.Context())
			require.NoError(t, err)
			size := m.raw.Size()
			s.answers(func(p natstest.Pull) bool {
				for range 2 {
					s.message(p.Reply)
				}
				return true
			})
			ms, err := s.sub.Fetch(t.Context(), 5, MaxBytes(2*size), FillBatch())
			require.NoError(t, err)
			require.Len(t, ms, 2)
			require.Zero(t, time.Since(s.start))
		})
	})
	t.Run("no_wait at MaxAckPending", func(t *testing.T) {
		virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
			s.answers(func(p natstest.Pull) bool {
				if p.Req.Expires > 0 {
					return false
				}
				s.message(p.Reply)
				return true
			})
			ms, err := s.sub.Fetch(t.Context(), 5)
			require.NoError(t, err)
			require.Len(t, ms, 1, "what came is not held back until the deadline")
			require.LessOrEqual(t, time.Since(s.start), quickSilence)

			s.answers(func(p natstest.Pull) bool { return p.Req.Expires == 0 })
			got := s.next(t.Context())
			after(2 * time.Second)
			s.publish(1)
			require.NoError(t, (<-got).err, "the long pull waits for the room")

			s.answers(silent)
			_, err = s.sub.Next(t.Context(), NoWait())
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, "MaxAckPending")
		})
	})
	t.Run("MaxWaiting full, with a heartbeat", func(t *testing.T) {
		virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
			full := true
			s.answers(func(p natstest.Pull) bool { return full && p.Req.Expires > 0 })
			got := s.next(t.Context(), MaxWait(time.Minute))
			after(10 * time.Second)
			s.mu.Lock()
			full = false
			s.mu.Unlock()
			after(time.Second)
			s.publish(1)
			require.NoError(t, (<-got).err)
		})
	})
	t.Run("nothing at all", func(t *testing.T) {
		virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
			s.answers(silent)
			_, err := s.sub.Fetch(t.Context(), 5)
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorIs(t, err, errSilent)
			require.Equal(t, 5*time.Second, time.Since(s.start))
		})
	})
}

func TestNoRespondersIsRetried(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.answers(func(p natstest.Pull) bool { return s.peer.NoResponders(p.Reply) })
		got := s.next(t.Context(), MaxWait(20*time.Second))
		after(10 * time.Second)
		pulls := s.got()
		require.GreaterOrEqual(t, len(pulls), 10, "it is tried again and again")
		require.LessOrEqual(t, len(pulls), 18, "but not in a hurry")
		var gaps []time.Duration
		for i := range pulls[1:] {
			gaps = append(gaps, pulls[i+1].at.Sub(pulls[i].at))
		}
		require.InDelta(t, 250, gaps[0].Milliseconds(), 50)
		require.InDelta(t, 500, gaps[1].Milliseconds(), 100)
		differ := false
		for _, gap := range gaps[2:] {
			require.InDelta(t, 800, gap.Milliseconds(), 160)
			differ = differ || gap != gaps[2]
		}
		require.True(t, differ, "the waits are jittered")
		s.answers(nil)
		s.publish(1)
		r := <-got
		require.NoError(t, r.err)
		require.LessOrEqual(t, r.at, 11*time.Second)
	})
}

func TestNoRespondersUntilTheDeadline(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.answers(func(p natstest.Pull) bool { return s.peer.NoResponders(p.Reply) })
		_, err := s.sub.Next(t.Context(), MaxWait(2*time.Second))
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, ErrNoResponders)
		require.ErrorIs(t, err, nats.ErrNoResponders)
		require.Equal(t, 2*time.Second, time.Since(s.start))
	})
}

func TestNoRespondersOfADeletedConsumer(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.peer.RemoveConsumer("S", "C")
		s.answers(func(p natstest.Pull) bool { return s.peer.NoResponders(p.Reply) })
		_, err := s.sub.Next(t.Context(), MaxWait(time.Minute))
		require.ErrorIs(t, err, ErrConsumerDeleted)
		require.ErrorIs(t, err, jetstream.ErrConsumerDeleted)
		require.ErrorContains(t, err, `"C"`)
		require.Zero(t, time.Since(s.start), "known as soon as the server has said so")
	})
}

func TestDeletedDuringALongPull(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		got := s.next(t.Context(), MaxWait(time.Minute))
		after(time.Second)
		s.mu.Lock()
		s.end(s.waiting[0], 409, "Consumer Deleted")
		s.mu.Unlock()
		r := <-got
		require.ErrorIs(t, r.err, ErrConsumerDeleted)
		status, ok := errors.AsType[*StatusError](r.err)
		require.True(t, ok)
		require.Equal(t, 409, status.Code)
		require.Equal(t, "$JS.API.CONSUMER.MSG.NEXT.S.C", status.Subject)
		require.Equal(t, time.Second, r.at)
	})
}

func TestReconnectDuringACall(t *testing.T) {
	for _, phase := range []string{"quick", "long"} {
		t.Run(phase, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
				s.answers(func(natstest.Pull) bool { return phase == "quick" })
				got := s.later(func() ([]*Msg, error) { return s.sub.Fetch(t.Context(), 5, MaxWait(20*time.Second)) })
				after(200 * time.Millisecond)
				s.peer.Refuse(true)
				s.peer.Cut()
				after(5 * time.Second)
				before := len(s.got())
				s.answers(nil)
				s.publish(2) // to pulls that nobody hears any more
				s.mu.Lock()
				s.waiting, s.stock = nil, 2
				s.mu.Unlock()
				s.peer.Refuse(false)
				r := <-got
				require.NoError(t, r.err)
				require.Len(t, r.ms, 2)
				require.LessOrEqual(t, r.at, 6*time.Second, "as soon as the connection is back")
				require.LessOrEqual(t, len(s.got())-before, 2)
				require.EqualValues(t, 1, s.sub.Stats().Reconnects)
			})
		})
	}
}

func TestADeadlineWhileDisconnected(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.peer.Refuse(true)
		s.peer.Cut()
		after(time.Millisecond)
		start := time.Now()
		_, err := s.sub.Next(t.Context(), MaxWait(3*time.Second))
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 3*time.Second, time.Since(start))
		s.peer.Refuse(false)
		s.publish(1)
		_, err = s.sub.Next(t.Context())
		require.NoError(t, err)
	})
}

func TestABlackHole(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.peer.Pause(true)
		got := s.next(t.Context(), MaxWait(3*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		bounded := s.next(ctx)
		r := <-bounded
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, r.at)
		r = <-got
		require.ErrorIs(t, r.err, ErrTimeout)
		require.Equal(t, 3*time.Second, r.at)
		s.peer.Pause(false)
		s.publish(1)
		_, err := s.sub.Next(t.Context())
		require.NoError(t, err)
	})
}

func TestWhatABlackHoleHeldBackIsNotLost(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		got := s.next(t.Context(), MaxWait(3*time.Second))
		s.peer.Pause(true)
		s.publish(1)
		r := <-got
		require.ErrorIs(t, r.err, ErrTimeout)
		s.peer.Pause(false)
		require.Equal(t, []uint64{1}, s.acked("-NAK"), "handed back, for its caller has gone")
		require.EqualValues(t, 1, s.sub.Stats().HandedBack)
	})
}

func TestLeadershipChangesDuringACall(t *testing.T) {
	for _, text := range []string{"Leadership Change", "Server Shutdown"} {
		t.Run(text, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
				got := s.next(t.Context(), MaxWait(20*time.Second))
				after(time.Second)
				s.mu.Lock()
				s.end(s.waiting[0], 409, text)
				s.stock = 1
				s.mu.Unlock()
				r := <-got
				require.NoError(t, r.err)
				require.InDelta(t, 1250, r.at.Milliseconds(), 60)
			})
		})
	}
}

func TestAClosedConnection(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		got := s.next(t.Context(), MaxWait(time.Minute))
		after(time.Second)
		s.nc.Close()
		r := <-got
		require.ErrorIs(t, r.err, ErrClosed)
		require.ErrorIs(t, r.err, nats.ErrConnectionClosed)
		require.Equal(t, time.Second, r.at)
		_, err := s.sub.Fetch(t.Context(), 5)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, err, nats.ErrConnectionClosed)
		_, err = Subscribe(t.Context(), s.js, "S", "C")
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, time.Second, time.Since(s.start), "known at once")
	})
}

func TestADrainingConnection(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		got := s.next(t.Context(), MaxWait(time.Minute))
		require.NoError(t, s.nc.Drain())
		r := <-got
		require.ErrorIs(t, r.err, ErrClosed)
		require.Less(t, r.at, time.Second)
		after(time.Minute) // nats.go drains on a goroutine of its own
	})
}

func TestAnInboxThatCannotBeSubscribed(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		e := s.sub.engine
		e.mu.Lock()
		e.rules.base = "not a subject"
		e.mu.Unlock()
		s.unaware()
		r := <-s.next(t.Context(), MaxWait(time.Minute))
		require.ErrorIs(t, r.err, nats.ErrBadSubject)
		require.Zero(t, r.at, "the caller hears of it at once")
	})
}
