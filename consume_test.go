package jetpull

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestConsumeHandlesAndAcknowledges(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(100)
		var j journal
		r := s.consume(j.handler(0))
		pass(time.Second)
		require.Equal(t, upTo(100), j.all(), "stream order with one worker")
		require.Equal(t, 100, s.count("+ACK", 0))
		s.publish(50)
		pass(time.Second)
		require.Equal(t, upTo(150), j.all())
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
		require.Empty(t, r.errs.all())
		require.Equal(t, 150, s.count("+ACK", 0))
		require.Zero(t, s.count("+WPI", 0), "no in-progress for fast handlers")
		require.Zero(t, s.count("-NAK", 0))
		require.Zero(t, s.unsettled())
	})
}

func TestConsumeRunsHandlersInParallel(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(40)
		var running, most atomic.Int64
		r := s.consume(func(context.Context, *Msg) error {
			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-time.After(time.Second)
			running.Add(-1)
			return nil
		}, Concurrency(8))
		start := time.Now()
		for s.count("+ACK", 0) < 40 {
			pass(100 * time.Millisecond)
		}
		requireNear(t, 5*time.Second, time.Since(start), 300*time.Millisecond, "40 messages of 1 s on 8 workers")
		require.EqualValues(t, 8, most.Load())
		require.NoError(t, r.stop())
	})
}

func TestConsumeOrderedBy(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		for range 20 {
			for _, key := range []string{"s.a", "s.b", "s.c"} {
				s.publishTo(key, nil, "x")
			}
		}
		var j journal
		var failures atomic.Int64
		last := map[string]uint64{}
		r := s.consume(func(_ context.Context, m *Msg) error {
			<-time.After(10 * time.Millisecond)
			if m.Subject() == "s.b" && m.Sequence()%5 == 0 && m.Delivered() == 1 {
				failures.Add(1)
				return Retry(100*time.Millisecond, errors.New("not yet"))
			}
			j.mu.Lock()
			defer j.mu.Unlock()
			if m.Sequence() <= last[m.Subject()] {
				t.Errorf("key %s: %d after %d", m.Subject(), m.Sequence(), last[m.Subject()])
			}
			last[m.Subject()] = m.Sequence()
			j.seqs = append(j.seqs, int(m.Sequence()))
			return nil
		}, OrderedBy((*Msg).Subject), Concurrency(4))
		pass(time.Minute)
		require.ElementsMatch(t, upTo(60), j.all())
		require.Positive(t, failures.Load())
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
	})
}

func TestConsumeSettlesByWhatTheHandlerReturns(t *testing.T) {
	cause := errors.New("cause")
	tooLong := "status 500:\r\n" + strings.Repeat("x", 2<<20) // more than the server takes
	for _, tc := range []struct {
		name    string
		opts    []Option
		handler Handler
		verb    string
		arg     string
		again   time.Duration // until it is delivered again; 0: never
		problem string
	}{
		{"error", nil, func(context.Context, *Msg) error { return cause }, "-NAK", "", time.Nanosecond, "cause"},
		{"retry", nil, func(context.Context, *Msg) error { return Retry(3*time.Second, cause) }, "-NAK", `{"delay":3000000000}`, 3 * time.Second, "cause"},
		{"retry at once", []Option{RetryDelays(time.Hour)}, func(context.Context, *Msg) error { return Retry(0, nil) }, "-NAK", "", time.Nanosecond, "retry"},
		{"retry delays", []Option{RetryDelays(7 * time.Second)}, func(context.Context, *Msg) error { return cause }, "-NAK", `{"delay":7000000000}`, 7 * time.Second, "cause"},
		{"wrapped retry", nil, func(context.Context, *Msg) error { return errors.Join(errors.New("x"), Retry(2*time.Second, nil)) }, "-NAK", `{"delay":2000000000}`, 2 * time.Second, "x"},
		{"terminate", nil, func(context.Context, *Msg) error { return Terminate("no good", cause) }, "+TERM", "no good", 0, "cause"},
		{"terminate without a reason", nil, func(context.Context, *Msg) error { return Terminate("", nil) }, "+TERM", "", 0, "terminate"},
		{"terminate for a long reason", nil, func(context.Context, *Msg) error { return Terminate(tooLong, cause) }, "+TERM", "status 500: " + strings.Repeat("x", maxReason-12), 0, "cause"},
		{"terminated for a long reason", nil, func(_ context.Context, m *Msg) error { return m.TermWithReason(tooLong) }, "+TERM", "status 500: " + strings.Repeat("x", maxReason-12), 0, ""},
		{"terminate for white space", nil, func(context.Context, *Msg) error { return Terminate("\r\n", nil) }, "+TERM", "", 0, "terminate"},
		{"panic", nil, func(context.Context, *Msg) error { panic("oh no") }, "-NAK", "", time.Nanosecond, "panicked: oh no"},
		{"goexit", nil, func(context.Context, *Msg) error { runtime.Goexit(); return nil }, "-NAK", "", time.Nanosecond, "ended its goroutine"},
		{"settled by the handler", nil, func(_ context.Context, m *Msg) error { return m.Term() }, "+TERM", "", 0, ""},
		{"settled and failed", nil, func(_ context.Context, m *Msg) error { _ = m.Ack(); return cause }, "+ACK", "", 0, "cause"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				var calls atomic.Int64
				r := s.consume(func(ctx context.Context, m *Msg) error {
					if calls.Add(1) > 1 {
						return nil
					}
					return tc.handler(ctx, m)
				}, tc.opts...)
				s.publish(1)
				synctest.Wait()
				if tc.again > 0 {
					pass(tc.again)
					require.EqualValues(t, 2, calls.Load(), "delivered again")
				} else {
					pass(time.Minute)
					require.EqualValues(t, 1, calls.Load())
				}
				first := s.verbs(tc.verb, 1)
				require.Len(t, first, 1)
				require.Equal(t, tc.arg, first[0].arg)
				require.Zero(t, s.unsettled())
				errs := r.errs.all()
				if tc.problem == "" {
					require.Empty(t, errs)
				} else {
					require.Len(t, errs, 1)
					require.ErrorContains(t, errs[0], tc.problem)
					require.ErrorContains(t, errs[0], "stream sequence 1")
				}
				s.publish(1)
				pass(time.Second)
				require.Equal(t, 1, s.count("+ACK", 2), "it goes on")
				require.NoError(t, r.stop())
			})
		})
	}
}

func TestConsumePanicKeepsItsStack(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(1)
		r := s.consume(func(_ context.Context, m *Msg) error {
			if m.Delivered() == 1 {
				panic(errors.New("deep"))
			}
			return nil
		})
		pass(time.Second)
		require.NoError(t, r.stop())
		require.Len(t, r.errs.all(), 1)
		require.ErrorContains(t, r.errs.all()[0], "consume_test.go", "where it panicked")
		require.Len(t, s.logs.with("consume_test.go"), 1)
	})
}

func TestConsumeRetryDelaysByDeliveryCount(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(1)
		var at []time.Time
		r := s.consume(func(context.Context, *Msg) error {
			at = append(at, time.Now())
			return errors.New("never")
		}, RetryDelays(time.Second, 5*time.Second, 0, time.Minute))
		pass(130 * time.Second)
		require.NoError(t, r.stop())
		require.Len(t, at, 6)
		for i, want := range []time.Duration{time.Second, 5 * time.Second, 0, time.Minute, time.Minute} {
			requireNear(t, want, at[i+1].Sub(at[i]), 10*time.Millisecond, "delay %d", i)
		}
	})
}

func TestConsumeUsesTheConsumersBackOff(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{BackOff: []time.Duration{2 * time.Second, 9 * time.Second}, MaxDeliver: 4}, func(t *testing.T, s *stage) {
		s.publish(1)
		var at []time.Time
		r := s.consume(func(context.Context, *Msg) error {
			at = append(at, time.Now())
			return errors.New("never")
		})
		pass(5 * time.Minute)
		require.NoError(t, r.stop())
		require.Len(t, at, 4, "MaxDeliver")
		for i, want := range []time.Duration{2 * time.Second, 9 * time.Second, 9 * time.Second} {
			requireNear(t, want, at[i+1].Sub(at[i]), 10*time.Millisecond, "delay %d", i)
		}
	})
}

func TestRetryDelay(t *testing.T) {
	st := &stream{sub: &Subscription{}, set: defaultSettings()}
	require.Zero(t, st.retryDelay(1), "at once by default")
	st.sub.configure(jetstream.ConsumerConfig{BackOff: []time.Duration{time.Second, time.Minute}})
	for attempts, want := range []time.Duration{time.Second, time.Second, time.Minute, time.Minute, time.Minute} {
		require.Equal(t, want, st.retryDelay(attempts), "attempt %d", attempts)
	}
	st.set.streaming.retryDelays = []time.Duration{3}
	require.EqualValues(t, 3, st.retryDelay(math.MaxInt), "the option comes before the consumer")
}

func TestConsumeBadInput(t *testing.T) {
	nothing := func(context.Context, *Msg) error { return nil }
	explicit := jetstream.ConsumerConfig{}
	limited := jetstream.ConsumerConfig{MaxDeliver: 3}
	all := jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}
	none := jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}
	for _, tc := range []struct {
		name  string
		cfg   jetstream.ConsumerConfig
		h     Handler
		names string
		opts  []Option
	}{
		{"nil handler", explicit, nil, "handler", nil},
		{"no concurrency", explicit, nothing, "Concurrency", []Option{Concurrency(0)}},
		{"negative concurrency", explicit, nothing, "Concurrency", []Option{Concurrency(-1)}},
		{"concurrency without end", explicit, nothing, "Concurrency", []Option{Concurrency(math.MaxInt)}},
		{"concurrency with ack all", all, nothing, "Concurrency", []Option{Concurrency(2)}},
		{"nil key", explicit, nothing, "OrderedBy", []Option{OrderedBy(nil)}},
		{"prefetch 0", explicit, nothing, "Prefetch", []Option{Prefetch(0)}},
		{"prefetch too large", explicit, nothing, "Prefetch", []Option{Prefetch(maxPrefetch + 1)}},
		{"prefetch below concurrency", explicit, nothing, "Prefetch: 3 is below Concurrency 8", []Option{Prefetch(3), Concurrency(8)}},
		{"prefetch bytes 0", explicit, nothing, "PrefetchBytes", []Option{PrefetchBytes(0)}},
		{"prefetch bytes overflow", explicit, nothing, "PrefetchBytes", []Option{PrefetchBytes(math.MaxInt)}},
		{"max bytes 0", explicit, nothing, "MaxBytes", []Option{MaxBytes(0)}},
		{"negative retry delay", explicit, nothing, "RetryDelays", []Option{RetryDelays(time.Second, -1)}},
		{"endless retry delay", explicit, nothing, "RetryDelays", []Option{RetryDelays(math.MaxInt64)}},
		{"max attempts 0", explicit, nothing, "MaxAttempts", []Option{MaxAttempts(0)}},
		{"max attempts over MaxDeliver", limited, nothing, "MaxDeliver", []Option{MaxAttempts(4)}},
		{"max attempts with ack none", none, nothing, "MaxAttempts", []Option{MaxAttempts(2)}},
		{"retry delays with ack none", none, nothing, "RetryDelays", []Option{RetryDelays(time.Second)}},
		{"dead letter alone", explicit, nothing, "DeadLetter", []Option{DeadLetter("dead")}},
		{"dead letter to nothing", explicit, nothing, "DeadLetter", []Option{DeadLetter(""), MaxAttempts(1)}},
		{"dead letter to a wildcard", explicit, nothing, "DeadLetter", []Option{DeadLetter("dead.*"), MaxAttempts(1)}},
		{"negative drain timeout", explicit, nothing, "DrainTimeout", []Option{DrainTimeout(-1)}},
		{"endless drain timeout", explicit, nothing, "DrainTimeout", []Option{DrainTimeout(math.MaxInt64)}},
		{"nil OnError", explicit, nothing, "OnError", []Option{OnError(nil)}},
		{"nil logger", explicit, nothing, "Logger", []Option{Logger(nil)}},
		{"group of a consumer without", explicit, nothing, "Group", []Option{Group("g")}},
		{"threshold off policy", explicit, nothing, "MinPending", []Option{MinPending(1)}},
		{"option of Fetch", explicit, nothing, "FillBatch", []Option{FillBatch()}},
		{"option of Next", explicit, nothing, "MaxWait", []Option{MaxWait(time.Second)}},
		{"heartbeat 0", explicit, nothing, "Heartbeat", []Option{Heartbeat(0)}},
		{"heartbeat over half of a pull's life", explicit, nothing, "Heartbeat", []Option{Heartbeat(streamExpires/2 + 1)}},
		{"empty option", explicit, nothing, "Option", []Option{{}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, tc.cfg, func(t *testing.T, s *stage) {
				s.peer.ResetOps()
				ctx, done := context.WithTimeout(t.Context(), time.Second)
				defer done()
				err := s.sub.Consume(ctx, tc.h, tc.opts...)
				require.ErrorIs(t, err, ErrInvalidOption)
				require.ErrorContains(t, err, tc.names)
				synctest.Wait()
				require.Empty(t, s.peer.Ops(), "something was sent")
				stopped, cancel := context.WithCancel(t.Context())
				cancel()
				require.ErrorIs(t, s.sub.Consume(stopped, tc.h, tc.opts...), ErrInvalidOption, "even if it is over already")
			})
		})
	}
}

func TestConsumeNeedsAContext(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var none context.Context
		require.ErrorIs(t, s.sub.Consume(none, func(context.Context, *Msg) error { return nil }), ErrInvalidOption)
	})
}

func TestConsumeWithAnEndedContext(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, s.sub.Consume(ctx, func(context.Context, *Msg) error { return nil }))
		require.Zero(t, s.pullCount())
	})
}

func TestTwoConsumesAndNextOnOneSubscription(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var a, b, n journal
		first, second := s.consume(a.handler(time.Millisecond)), s.consume(b.handler(time.Millisecond), Concurrency(2))
		for range 10 {
			s.publish(30)
			for range 3 {
				next := make(chan error)
				go func() {
					m, err := s.sub.Next(t.Context())
					if err == nil {
						n.note(m)
						err = m.Ack()
					}
					next <- err
				}()
				synctest.Wait()
				s.publish(1)
				require.NoError(t, <-next)
			}
			pass(100 * time.Millisecond)
		}
		require.ElementsMatch(t, upTo(330), append(append(a.all(), b.all()...), n.all()...), "each message once")
		require.Equal(t, 30, n.len())
		require.Positive(t, a.len())
		require.Positive(t, b.len())

		require.NoError(t, first.stop())
		s.publish(50)
		pass(time.Second)
		require.Zero(t, s.unsettled(), "the other one has all")
		require.NoError(t, second.stop())
		require.Zero(t, s.sub.Stats().Outstanding)
		require.Zero(t, s.sub.Stats().Window)
	})
}

func TestConsumeAckNoneSendsNoAcks(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			j.note(m)
			switch m.Sequence() % 4 {
			case 0:
				return errors.New("failed")
			case 1:
				return Terminate("bad", nil)
			case 2:
				<-time.After(20 * time.Second)
			}
			return nil
		}, OrderedBy((*Msg).Subject))
		s.publish(40)
		pass(15 * time.Minute)
		require.Equal(t, upTo(40), j.all())
		s.publish(100)
		pass(time.Second)
		require.NoError(t, r.stop())
		for _, op := range s.peer.Ops() {
			require.False(t, strings.HasPrefix(op.Subject, "$JS.ACK"), "ack traffic: %s", op)
		}
		require.NoError(t, s.sub.Close(t.Context()))
		require.EqualValues(t, 140, uint64(j.len())+s.sub.Stats().Dropped+uint64(s.left()), "what was not handled is counted")
	})
}

func TestConsumeStats(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(30)
		r := s.consume(func(_ context.Context, m *Msg) error {
			if m.Delivered() == 1 && m.Sequence() == 1 {
				return errors.New("once")
			}
			<-time.After(10 * time.Second)
			return nil
		}, Concurrency(3), Prefetch(10))
		synctest.Wait()
		stats := s.sub.Stats()
		require.Equal(t, 3, stats.Running)
		require.Equal(t, 10, stats.Window)
		require.InDelta(t, 7, stats.Buffered, 1, "one is settled, and not yet worth a pull")
		require.EqualValues(t, 1, stats.Naks)
		pass(2 * time.Minute)
		stats = s.sub.Stats()
		require.EqualValues(t, 30, stats.Acks)
		require.EqualValues(t, 31, stats.Messages)
		require.EqualValues(t, 1, stats.Redelivered)
		require.Zero(t, stats.Running+stats.Buffered)
		require.NoError(t, r.stop())
	})
}
