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

	"github.com/jetpull/jetpull/internal/natstest"
)

func TestFetchDefaults(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(3)
		ms, err := s.sub.Fetch(t.Context(), 2)
		require.NoError(t, err)
		require.Equal(t, []string{"1", "2"}, bodies(ms))
		ms, err = s.sub.Fetch(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, []string{"3"}, bodies(ms), "a batch larger than what is there")
		require.Zero(t, time.Since(s.start), "nothing has waited")
		pulls := s.got()
		require.Len(t, pulls, 2)
		require.JSONEq(t, `{"batch":2,"no_wait":true}`, string(pulls[0].Body))

		_, err = s.sub.Fetch(t.Context(), 10)
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, nats.ErrTimeout)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "the context has no deadline")
		require.ErrorContains(t, err, `consumer "C" on stream "S"`)
		require.Equal(t, 4900*time.Millisecond, time.Since(s.start), "5 s by default, of which the server gets 4.9")
		require.JSONEq(t, `{"batch":10,"expires":4900000000,"no_wait":true}`, string(s.got()[3].Body))
	})
}

func TestTheBusyPathSubscribesNothing(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(300)
		s.peer.ResetOps()
		for range 100 {
			ms, err := s.sub.Fetch(t.Context(), 3)
			require.NoError(t, err)
			require.Len(t, ms, 3)
		}
		require.Len(t, s.ops("PUB"), 100)
		require.Empty(t, s.ops("SUB"))
		require.Empty(t, s.ops("UNSUB"))
	})
}

func TestTheIdlePathHasAnInboxOfItsOwn(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.peer.ResetOps()
		_, err := s.sub.Fetch(t.Context(), 3, MaxWait(time.Second))
		require.ErrorIs(t, err, ErrTimeout)
		require.Len(t, s.ops("PUB"), 2)
		sub := s.ops("SUB")
		require.Len(t, sub, 1)
		require.Equal(t, sub[0].Subject, s.got()[1].Reply)
		unsub := s.ops("UNSUB")
		require.Equal(t, 4, unsub[0].Max, "auto-unsubscribed at n + 1")
		require.Len(t, unsub, 2)
		require.False(t, s.peer.HasInterest(sub[0].Subject))
	})
}

func TestHeartbeatsCountForUnsubscribing(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.peer.ResetOps()
		got := s.next(t.Context(), MaxWait(time.Minute))
		for _, op := range s.ops("UNSUB") {
			require.Zero(t, op.Max, "heartbeats would use it up")
		}
		after(50 * time.Second)
		require.EqualValues(t, 10, s.sub.Stats().Statuses[100])
		s.publish(1)
		require.NoError(t, (<-got).err)
	})
}

func TestTheMessageComesDuringTheLongPull(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		got := s.later(func() ([]*Msg, error) { return s.sub.Fetch(t.Context(), 10) })
		after(2 * time.Second)
		s.publish(3)
		r := <-got
		require.NoError(t, r.err)
		require.Equal(t, []string{"1", "2", "3"}, bodies(r.ms))
		require.Equal(t, 2*time.Second, r.at)
	})
}

func TestFillBatchWaits(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(1)
		got := s.later(func() ([]*Msg, error) { return s.sub.Fetch(t.Context(), 5, FillBatch()) })
		for range 3 {
			after(time.Second)
			s.publish(1)
		}
		require.Empty(t, got)
		s.publish(1)
		r := <-got
		require.NoError(t, r.err)
		require.Len(t, r.ms, 5)
		require.Equal(t, 3*time.Second, r.at)

		s.publish(2)
		ms, err := s.sub.Fetch(t.Context(), 5, FillBatch(), MaxWait(time.Second))
		require.NoError(t, err, "what there is at the deadline is no error")
		require.Len(t, ms, 2)
		require.Equal(t, 3900*time.Millisecond, time.Since(s.start))
	})
}

func TestNoWaitReturnsAtOnce(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		_, err := s.sub.Next(t.Context(), NoWait())
		require.ErrorIs(t, err, ErrNoMessages)
		require.ErrorIs(t, err, jetstream.ErrNoMessages)
		s.publish(2)
		ms, err := s.sub.Fetch(t.Context(), 10, NoWait())
		require.NoError(t, err)
		require.Len(t, ms, 2)
		require.Zero(t, time.Since(s.start))
		require.Len(t, s.got(), 2)
	})
}

func TestWhoseDeadline(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		for _, tt := range []struct {
			context, maxWait, want time.Duration
			deadlineExceeded       bool
		}{
			{0, 0, 4900 * time.Millisecond, false},
			{0, time.Second, 900 * time.Millisecond, false},
			{2 * time.Second, 0, 1900 * time.Millisecond, true},
			{2 * time.Second, time.Second, 900 * time.Millisecond, false},
			{time.Second, 2 * time.Second, 900 * time.Millisecond, true},
			{30 * time.Second, 0, 29900 * time.Millisecond, true},
			{0, 50 * time.Millisecond, 45 * time.Millisecond, false},
		} {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if tt.context > 0 {
				ctx, cancel = context.WithTimeout(ctx, tt.context)
			}
			var opts []Option
			if tt.maxWait > 0 {
				opts = append(opts, MaxWait(tt.maxWait))
			}
			start := time.Now()
			_, err := s.sub.Next(ctx, opts...)
			cancel()
			require.ErrorIs(t, err, ErrTimeout)
			require.Equal(t, tt.want, time.Since(start), "context %v, MaxWait %v", tt.context, tt.maxWait)
			require.Equal(t, tt.deadlineExceeded, errors.Is(err, context.DeadlineExceeded), "context %v, MaxWait %v: %v", tt.context, tt.maxWait, err)
		}
	})
}

func TestSixtyFourCallersShare(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		var calls []<-chan result
		for range 64 {
			calls = append(calls, s.next(t.Context(), MaxWait(10*time.Second)))
		}
		synctest.Wait()
		after(time.Second)
		long := 0
		for _, p := range s.got() {
			if p.Req.Expires > 0 {
				long += p.Req.Batch
			}
		}
		require.Equal(t, 64, long, "one message on order for each caller")
		s.publish(64)
		seen := map[string]bool{}
		for _, call := range calls {
			r := <-call
			require.NoError(t, r.err)
			require.Equal(t, time.Second, r.at)
			seen[bodies(r.ms)[0]] = true
		}
		require.Len(t, seen, 64, "each has a message of its own")
		require.Empty(t, s.acked("-NAK"))
	})
}

func TestCallersThatComeTogetherShareOnePull(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		// The peer answers after a while, as a server on a slow link does.
		s.answers(func(p natstest.Pull) bool {
			time.AfterFunc(100*time.Millisecond, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.serve(p)
			})
			return true
		})
		s.publish(64)
		var calls []<-chan result
		for range 64 {
			calls = append(calls, s.next(t.Context()))
		}
		for _, call := range calls {
			require.NoError(t, (<-call).err)
		}
		pulls := s.got()
		asked := 0
		for _, p := range pulls {
			asked += p.Req.Batch
		}
		require.Equal(t, 64, asked, "demand is covered once")
		require.LessOrEqual(t, len(pulls), quickAtOnce+quickAtOnce, "64 callers, %d pulls", len(pulls))
		require.LessOrEqual(t, time.Since(s.start), 200*time.Millisecond)
	})
}

func TestAReaderThatLeavesHandsTheReadingOn(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		first, cancel := context.WithCancel(t.Context())
		leader := s.next(first, MaxWait(20*time.Second))
		second, cancelSecond := context.WithCancel(t.Context())
		follower := s.next(second, MaxWait(20*time.Second))
		third := s.next(t.Context(), MaxWait(20*time.Second))
		after(time.Second)
		cancel()
		require.ErrorIs(t, (<-leader).err, context.Canceled)
		cancelSecond()
		require.ErrorIs(t, (<-follower).err, context.Canceled)
		after(time.Second)
		s.publish(1)
		r := <-third
		require.NoError(t, r.err)
		require.Equal(t, 2*time.Second, r.at)
	})
}

func TestAFollowerThatBecomesReaderKeepsItsDeadline(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.answers(silent)
		leader := s.next(t.Context(), MaxWait(time.Second))
		follower := s.next(t.Context(), MaxWait(3*time.Second))
		hasty := s.next(t.Context(), MaxWait(500*time.Millisecond))
		for _, tt := range []struct {
			call <-chan result
			at   time.Duration
		}{{hasty, 500 * time.Millisecond}, {leader, time.Second}, {follower, 3 * time.Second}} {
			r := <-tt.call
			require.ErrorIs(t, r.err, ErrTimeout)
			require.Equal(t, tt.at, r.at)
		}
	})
}

func TestAStoredStatusHeaderIsAMessage(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.answers(func(p natstest.Pull) bool {
			s.peer.Deliver(p.Reply, natstest.Data{
				Subject: "s.a", Header: nats.Header{"Status": {"404"}, "Description": {"No Messages"}},
				AckReply: natstest.AckReply("S", "C", 1, 7, 7, time.Now(), 0),
			})
			return true
		})
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 7, m.Sequence())
		require.Equal(t, "404", m.Headers().Get("Status"))
	})
}
