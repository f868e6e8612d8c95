package jetpull

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestAContextThatEndsInCenturies(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		after(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), math.MaxInt64)
		defer cancel()
		next := s.next(ctx)
		after(time.Minute)
		require.Less(t, len(s.got()), 10, "pulls of a call that waits")
		s.publish(1)
		require.NoError(t, (<-next).err)
	})
}

func TestOnPinOfConsumeIsNotHiddenByOtherCalls(t *testing.T) {
	var log pinLog
	virtually(t, pinnedConsumer, func(t *testing.T, s *script) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- s.sub.Consume(ctx, func(context.Context, *Msg) error { return nil }, OnPin(log.note("consume")))
		}()
		synctest.Wait()
		next := s.next(t.Context(), MaxWait(time.Minute))
		s.setPin("one")
		s.publish(2)
		require.NoError(t, (<-next).err)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []string{"consume g one"}, log.all())
	}, Group("g"))
}

// blockingLog is a logger's handler that stands still until it is released.
type blockingLog struct {
	slog.Handler
	stuck   chan struct{}
	blocked atomic.Bool
}

func (l *blockingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		l.blocked.Store(true)
		<-l.stuck
	}
	return nil
}

func (l *blockingLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *blockingLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// The connection comes and goes more often than nats.go keeps in mind for a
// listener that is held up.
func TestAConnectionThatFlapsWhileTheLoggerIsStuck(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		l := &blockingLog{Handler: slog.DiscardHandler, stuck: make(chan struct{})}
		var j journal
		r := s.consume(j.handler(0), Logger(slog.New(l)))
		e := s.sub.engine
		e.mu.Lock()
		e.rules.do(action{kind: actProblem, claim: e.streams[0].claim, err: errSilent})
		e.mu.Unlock() // the next to act is who hears of the cut
		for range 12 {
			s.peer.Cut()
			pass(200 * time.Millisecond)
		}
		require.True(t, l.blocked.Load())
		require.True(t, s.nc.IsConnected())
		close(l.stuck)
		pass(2 * time.Second)
		s.publish(200) // more than the pulls from before have asked for
		pass(2 * time.Second)
		require.Equal(t, upTo(200), j.all())
		require.NoError(t, r.stop())
	})
}

func TestAPullInTheMomentOfACutIsSentAgain(t *testing.T) {
	conn := []nats.Option{nats.ReconnectBufSize(-1)}
	virtuallyOver(t, conn, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.peer.Refuse(true)
		s.peer.Cut()
		after(time.Millisecond)
		s.unaware()
		next := s.next(t.Context(), MaxWait(time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		consumed := make(chan error, 1)
		var handled atomic.Int64
		go func() {
			consumed <- s.sub.Consume(ctx, func(context.Context, *Msg) error { handled.Add(1); return nil })
		}()
		after(10 * time.Second)
		s.peer.Refuse(false)
		after(2 * time.Second)
		s.publish(2)
		require.NoError(t, (<-next).err)
		after(2 * time.Second)
		require.EqualValues(t, 1, handled.Load())
		require.Empty(t, consumed)
		cancel()
		require.NoError(t, <-consumed)
	})
}

func TestRetryAfterCenturiesHoldsItsLine(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(3)
		var j journal
		r := s.consume(func(ctx context.Context, m *Msg) error {
			if m.Sequence() == 1 {
				return Retry(math.MaxInt64, errors.New("never"))
			}
			return j.handler(0)(ctx, m)
		}, OrderedBy((*Msg).Subject))
		pass(time.Hour)
		require.Empty(t, j.all(), "those behind a message that is to come again wait for it")
		require.NoError(t, r.stop())
	})
}

func TestRetryDelaysAreTheCallersOwn(t *testing.T) {
	delays := []time.Duration{time.Minute}
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		delays[0] = time.Hour
		s.publish(1)
		var j journal
		r := s.consume(func(ctx context.Context, m *Msg) error {
			if m.Delivered() == 1 {
				return errors.New("not yet")
			}
			return j.handler(0)(ctx, m)
		})
		pass(2 * time.Minute)
		require.Equal(t, []int{1}, j.all())
		require.NoError(t, r.stop())
	}, RetryDelays(delays...))
}

// A message that was handed back for want of space is due again while the
// connection is away. That the time is over does not mean that somebody else has
// it, and the acknowledgement of a later one would cover it.
func TestAckAllDoesNotCoverWhatIsAwayForLong(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		const n = maxBack + 20
		var j journal
		r := s.consume(func(ctx context.Context, m *Msg) error {
			if m.Sequence() == 1 && m.Delivered() == 1 {
				return Retry(3*time.Second, errors.New("not yet"))
			}
			return j.handler(0)(ctx, m)
		})
		s.publish(n)
		pass(3100 * time.Millisecond) // 1 is back, what was rejected is not
		s.publish(200)
		pass(500 * time.Millisecond)
		t.Log(len(j.all()), s.count("-NAK", 0), s.count("+ACK", 0), s.unsettled())
		require.Less(t, len(j.all()), n+200, "some are still away")
		s.peer.Refuse(true)
		s.peer.Cut()
		pass(20 * time.Second)
		s.peer.Refuse(false)
		pass(2 * time.Minute)
		got := j.all()
		slices.Sort(got)
		require.Equal(t, upTo(n+200), slices.Compact(got), "each is handled")
		require.NoError(t, r.stop())
	})
}
