package jetpull

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestDrainLetsRunningHandlersFinish(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(50)
		var cancelled atomic.Bool
		r := s.consume(func(ctx context.Context, _ *Msg) error {
			<-time.After(20 * time.Second)
			cancelled.Store(ctx.Err() != nil)
			return nil
		}, Concurrency(3))
		stopped := time.Now()
		r.cancel()
		synctest.Wait()
		require.Zero(t, time.Since(stopped), "no time goes by")
		require.True(t, r.running())
		naks := s.count("-NAK", 0)
		require.Positive(t, naks, "what was read ahead goes back at once")
		require.Zero(t, s.count("+ACK", 0))
		pulls := s.pullCount()
		require.NoError(t, r.result())
		requireNear(t, 20*time.Second, time.Since(stopped), 100*time.Millisecond, "the time of a handler")
		require.Equal(t, 3, s.count("+ACK", 0))
		require.False(t, cancelled.Load(), "the handlers' context outlives Consume's")
		require.Equal(t, pulls, s.pullCount(), "nothing is pulled while it drains")
		require.Equal(t, naks, s.count("-NAK", 0))
		require.EqualValues(t, naks, s.sub.Stats().HandedBack)
	})
}

func TestDrainTimeoutCancelsHandlers(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(10)
		r := s.consume(func(ctx context.Context, _ *Msg) error {
			<-ctx.Done()
			return ctx.Err()
		}, Concurrency(2), DrainTimeout(5*time.Second))
		stopped := time.Now()
		err := r.stop()
		requireNear(t, 5*time.Second, time.Since(stopped), 100*time.Millisecond, "DrainTimeout")
		require.ErrorIs(t, err, ErrDrainTimeout)
		require.ErrorContains(t, err, "2 handlers")
		require.ErrorContains(t, err, "5s")
		require.Equal(t, 10, s.count("-NAK", 0), "all go back")
	})
}

func TestDrainGraceLeavesHandlersThatGoOn(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(1)
		r := s.consume(func(context.Context, *Msg) error {
			<-time.After(time.Minute)
			return nil
		}, DrainTimeout(5*time.Second))
		stopped := time.Now()
		err := r.stop()
		requireNear(t, 5*time.Second+drainGrace, time.Since(stopped), 100*time.Millisecond, "DrainTimeout and grace")
		require.ErrorIs(t, err, ErrDrainTimeout)
		require.ErrorContains(t, err, "1 handlers go on")
		pass(time.Minute)
		require.Equal(t, 1, s.count("+ACK", 1), "what it settles later counts")
	})
}

func TestDrainTimeoutOfZero(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		for range 50 {
			idle := s.consume(func(context.Context, *Msg) error { return nil }, Concurrency(4), DrainTimeout(0))
			require.NoError(t, idle.stop(), "nothing ran that could be cancelled")
		}
		s.publish(1)
		busy := s.consume(func(ctx context.Context, _ *Msg) error { <-ctx.Done(); return nil }, DrainTimeout(0))
		stopped := time.Now()
		require.ErrorIs(t, busy.stop(), ErrDrainTimeout)
		require.Zero(t, time.Since(stopped), "cancelled at once")
	})
}

func TestDrainWithHandlersThatDoNotReturn(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(20)
		r := s.consume(func(_ context.Context, m *Msg) error {
			<-time.After(time.Second)
			if m.Sequence()%2 == 0 {
				runtime.Goexit()
			}
			panic("always")
		}, Concurrency(4))
		pass(10 * time.Second)
		require.NoError(t, r.stop())
		require.GreaterOrEqual(t, s.count("-NAK", 0), 20)
		require.Zero(t, s.sub.Stats().Running)
	})
}

// TestStoppedAtAnyMoment stops Consume a drawn while after messages came and
// looks whether each message was either handled or handed back.
func TestStoppedAtAnyMoment(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, s *stage) {
		published := 0
		for i := range 60 {
			n := 1 + i*i%97
			s.publish(n)
			published += n
			var j journal
			r := s.consume(j.handler(time.Duration(i%3)*time.Millisecond), Concurrency(1+i%4))
			pass(time.Duration(i%7) * time.Millisecond)
			require.NoError(t, r.stop())
			synctest.Wait()
			s.do(func() {
				require.Len(t, s.pending, 0, "round %d: delivered, not settled and not handed back", i)
				s.forgetQueued()
			})
			require.Zero(t, s.sub.Stats().Outstanding, "round %d", i)
		}
		var j journal
		last := s.consume(j.handler(0))
		pass(10 * time.Second)
		require.NoError(t, last.stop())
		require.Equal(t, published, s.ackedCount())
	})
}

func TestCloseEndsConsume(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, s *stage) {
		s.publish(40)
		r := s.consume(func(context.Context, *Msg) error { <-time.After(time.Second); return nil }, Concurrency(2))
		require.NoError(t, s.sub.Close(t.Context()))
		synctest.Wait()
		require.Positive(t, s.count("-NAK", 0), "handed back at once")
		require.ErrorIs(t, r.result(), ErrClosed)
		require.Equal(t, 2, s.count("+ACK", 0), "running handlers finish")
		pass(0)
		require.Zero(t, s.unsettled())
	})
}

func TestConnectionDrainedUnderConsume(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, s *stage) {
		s.publish(40)
		var j journal
		r := s.consume(j.handler(10 * time.Millisecond))
		pass(55 * time.Millisecond)
		require.NoError(t, s.nc.Drain())
		err := r.result()
		require.ErrorIs(t, err, ErrClosed)
		require.True(t, errors.Is(err, nats.ErrConnectionDraining) || errors.Is(err, nats.ErrConnectionClosed), "%v", err)
		pass(time.Second)
		require.True(t, s.nc.IsClosed())
		require.LessOrEqual(t, s.unsettled(), 1, "all but what was being handled went back before the connection closed")
	})
}

func TestConnectionClosedUnderConsume(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		r := s.consume(func(context.Context, *Msg) error { return nil })
		s.nc.Close()
		closed := time.Now()
		require.ErrorIs(t, r.result(), nats.ErrConnectionClosed)
		require.LessOrEqual(t, time.Since(closed), time.Second)
	})
}

func TestStopWhileDisconnected(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, s *stage) {
		s.publish(20)
		r := s.consume(func(context.Context, *Msg) error { <-time.After(time.Second); return nil })
		s.peer.Refuse(true)
		s.peer.Cut()
		synctest.Wait()
		stopped := time.Now()
		require.NoError(t, r.stop())
		require.LessOrEqual(t, time.Since(stopped), 6*time.Second, "it does not wait for the connection")
		s.peer.Refuse(false)
		pass(time.Second)
		require.Zero(t, s.unsettled(), "what was told meanwhile reaches the server")
	})
}
