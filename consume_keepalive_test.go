package jetpull

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestKeepAliveOfARunningMessage(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: 4 * time.Second}, func(t *testing.T, s *stage) {
		s.publish(1)
		var j journal
		r := s.consume(j.handler(time.Minute))
		pass(70 * time.Second)
		require.Equal(t, []int{1}, j.all(), "never delivered again")
		beats := s.count("+WPI", 1)
		require.InDelta(t, 25, beats, 6, "every half to three quarters of AckWait")
		require.EqualValues(t, beats, s.sub.Stats().InProgress)
		require.NoError(t, r.stop())
		require.Equal(t, beats, s.count("+WPI", 1), "none after it was settled")
	})
}

func TestKeepAliveOfWaitingMessages(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: time.Second}, func(t *testing.T, s *stage) {
		s.publish(10)
		var j journal
		r := s.consume(j.handler(3*time.Second), Prefetch(10))
		pass(35 * time.Second)
		require.Equal(t, upTo(10), j.all(), "each once, though the last waited for 27 s with AckWait 1 s")
		require.Positive(t, s.count("+WPI", 10))
		require.NoError(t, r.stop())
	})
}

func TestKeepAliveBehindAFailedMessage(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second}, func(t *testing.T, s *stage) {
		s.publish(3)
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			if j.note(m) == 1 && m.Sequence() == 1 {
				return Retry(20*time.Second, nil)
			}
			return nil
		}, OrderedBy((*Msg).Subject))
		pass(time.Minute)
		require.Equal(t, []int{1, 1, 2, 3}, j.all(), "the two that waited in the line came once")
		require.NoError(t, r.stop())
	})
}

func TestKeepAliveOff(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: time.Second}, func(t *testing.T, s *stage) {
		s.publish(1)
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			if j.note(m) == 1 {
				<-time.After(2500 * time.Millisecond)
			}
			return nil
		}, KeepAlive(false))
		pass(10 * time.Second)
		require.NoError(t, r.stop())
		require.Zero(t, s.count("+WPI", 0))
		require.Greater(t, s.cseqs, 1, "the server delivers it again")
	})
}

// TestSlowHandlerCausesNoDuplicate: 300 messages of 20 ms with AckWait 1 s, by
// defaults.
func TestSlowHandlerCausesNoDuplicate(t *testing.T) {
	for _, workers := range []int{1, 4} {
		onStage(t, jetstream.ConsumerConfig{AckWait: time.Second}, func(t *testing.T, s *stage) {
			s.publish(300)
			var j journal
			r := s.consume(j.handler(20*time.Millisecond), Concurrency(workers))
			start := time.Now()
			for s.ackedCount() < 300 {
				pass(20 * time.Millisecond)
			}
			ideal := 300 * 20 * time.Millisecond / time.Duration(workers)
			require.LessOrEqual(t, time.Since(start), ideal+100*time.Millisecond, "workers never wait for messages that are there")
			require.NoError(t, r.stop())
			require.Equal(t, 300, j.len(), "%d workers", workers)
		})
	}
}

// TestAdaptiveWindow looks at how much is held as the handler's speed changes.
func TestAdaptiveWindow(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: 8 * time.Second}, func(t *testing.T, s *stage) {
		var takes atomic.Int64
		s.publish(10_000)
		r := s.consume(func(context.Context, *Msg) error {
			if d := time.Duration(takes.Load()); d > 0 {
				<-time.After(d)
			}
			return nil
		})
		pass(0)
		require.Greater(t, s.sub.Stats().Window, 10*firstWindow, "a fast handler reads far ahead")
		require.LessOrEqual(t, s.sub.Stats().Window, maxPrefetch)
		takes.Store(int64(30 * time.Millisecond))
		s.publish(9000)
		pass(4 * time.Minute) // enough to work off what was read ahead before
		require.InDelta(t, 66, s.sub.Stats().Window, 3, "2 s, a quarter of AckWait, at 30 ms a message")
		st := s.sub.Stats()
		require.LessOrEqual(t, st.Buffered+st.Running, 70)
		require.Positive(t, st.Buffered, "%+v, %d left", st, s.left())
		require.NoError(t, r.stop())
		require.Equal(t, int(s.sub.Stats().Messages), s.ackedCount()+s.count("-NAK", 0), "nothing was delivered twice")
	})
}

// TestWindowGrowsOverASlowLink: with 50 ms each way and 1 ms handlers the
// workers have to be fed all the same.
func TestWindowGrowsOverASlowLink(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.peer.Latency(func(int) (up, down func() time.Duration) {
			link := func() time.Duration { return 50 * time.Millisecond }
			return link, link
		})
		s.peer.Cut()
		pass(time.Second)
		s.publish(5000)
		var j journal
		r := s.consume(j.handler(time.Millisecond))
		start := time.Now()
		for j.len() < 5000 {
			pass(10 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(start), 6*time.Second, "5 s of work and what it takes to grow")
		require.NoError(t, r.stop())
	})
}

func TestPrefetchBoundsWhatIsHeld(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(100)
		r := s.consume(func(context.Context, *Msg) error {
			st := s.sub.Stats()
			if held := st.Running + st.Buffered + st.Outstanding; held > 6 {
				t.Errorf("%d messages held or on order, want at most 6", held)
			}
			<-time.After(time.Second)
			return nil
		}, Prefetch(6), Concurrency(3))
		pass(time.Minute)
		require.Equal(t, 100, s.ackedCount())
		require.NoError(t, r.stop())
		s.do(func() {
			for _, req := range s.asked {
				require.LessOrEqual(t, req.Batch, 6)
			}
		})
	})
}

func TestPrefetchBytesBoundsWhatIsHeld(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		body := string(make([]byte, 1000))
		for range 60 {
			s.publishTo("s.a", nil, body)
		}
		most := 0
		r := s.consume(func(context.Context, *Msg) error {
			most = max(most, s.unsettled())
			<-time.After(time.Second)
			return nil
		}, PrefetchBytes(5000))
		pass(2 * time.Minute)
		require.Equal(t, 60, s.ackedCount())
		require.Equal(t, 4, most, "messages of about 1040 bytes in 5000")
		require.NoError(t, r.stop())
	})
}

func TestPrefetchBytesWithALargerMessage(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		for i := range 30 {
			size := 100
			if i%5 == 4 {
				size = 9000
			}
			s.publishTo("s.a", nil, string(make([]byte, size)))
		}
		most := 0
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			j.note(m)
			s.do(func() {
				bytes := 0
				for seq := range s.pending {
					bytes += len(s.stored[seq-1].Body)
				}
				most = max(most, bytes)
			})
			<-time.After(time.Second)
			return nil
		}, PrefetchBytes(1000))
		pass(time.Minute)
		require.Equal(t, upTo(30), j.all(), "the large ones too, in order")
		require.Equal(t, 9000, most, "a large one comes alone")
		require.LessOrEqual(t, s.pullCount(), 90, "without a flood of pulls")
		require.NoError(t, r.stop())
	})
}

// TestPrefetchBytesWithFailures: what waits behind a failed message does not
// count, and so its bytes must not stay counted.
func TestPrefetchBytesWithFailures(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		for range 200 {
			s.publishTo("s.a", nil, string(make([]byte, 200)))
		}
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			if m.Delivered() == 1 && m.Sequence()%3 == 0 {
				return errors.New("once")
			}
			j.note(m)
			return nil
		}, OrderedBy((*Msg).Subject), PrefetchBytes(2000))
		pass(5 * time.Minute)
		require.Equal(t, upTo(200), j.all())
		require.NoError(t, r.stop())
	})
}

func TestMaxBytesOfConsumeIsAnEnd(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publishTo("s.a", nil, "small")
		s.publishTo("s.a", nil, string(make([]byte, 5000)))
		var j journal
		r := s.consume(j.handler(0), MaxBytes(1000))
		require.ErrorIs(t, r.result(), ErrMaxBytes)
		require.Equal(t, []int{1}, j.all())
		require.LessOrEqual(t, s.pullCount(), 5)
	})
}

func TestOrderedByWithAckNoneHasNothingToLookAfter(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, s *stage) {
		st := s.sub.openStream(t.Context(), withStreaming(t, s.sub, OrderedBy((*Msg).Subject)), 1, true)
		require.Zero(t, st.rounds(), "no clock ticks")
		st.close()
	})
}

// TestLiftIsLookedForOften: with a long AckWait a line that waits in vain for
// its failed message must not wait for a quarter of it.
func TestLiftIsLookedForOften(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: 24 * time.Hour}, func(t *testing.T, s *stage) {
		s.publish(2)
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			j.note(m)
			if m.Sequence() == 1 {
				// As if another client got it: it never comes back.
				s.do(func() { s.cfg.MaxDeliver = 1 })
				return errors.New("once")
			}
			return nil
		}, OrderedBy((*Msg).Subject))
		pass(6500 * time.Millisecond)
		require.Equal(t, []int{1, 2}, j.all())
		require.NoError(t, r.stop())
	})
}

// TestLineIsNotLiftedWhileDisconnected: the failed message cannot come back.
func TestLineIsNotLiftedWhileDisconnected(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(3)
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			if j.note(m) > 1 || m.Sequence() > 1 {
				return nil
			}
			for s.sub.Stats().Buffered < 2 {
				<-time.After(time.Millisecond)
			}
			s.peer.Refuse(true)
			s.peer.Cut()
			return errors.New("once")
		}, OrderedBy((*Msg).Subject))
		pass(time.Minute)
		require.Equal(t, []int{1}, j.all(), "2 and 3 wait")
		s.peer.Refuse(false)
		pass(time.Minute)
		require.Equal(t, []int{1, 1, 2, 3}, j.all()[:4])
		require.NoError(t, r.stop())
	})
}

func withStreaming(t *testing.T, s *Subscription, opts ...Option) *settings {
	t.Helper()
	set, err := s.settings(t.Context(), callConsume, opts)
	require.NoError(t, err)
	return set
}

func TestRejectedMessagesDoNotLoop(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(maxBack + 500)
		r := s.consume(func(_ context.Context, m *Msg) error {
			if m.Sequence() == 1 && m.Delivered() == 1 {
				return Retry(10*time.Minute, nil)
			}
			return nil
		}, OrderedBy((*Msg).Subject))
		pass(time.Minute)
		require.LessOrEqual(t, s.sub.Stats().Messages, uint64(2*(maxBack+500)), "messages that have to go back come again and again")
		pass(20 * time.Minute)
		require.Equal(t, maxBack+500, s.ackedCount(), "all are handled in the end")
		require.NoError(t, r.stop())
		synctest.Wait()
	})
}
