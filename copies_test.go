package jetpull

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// overdueSoon has messages come again after a second.
var overdueSoon = jetstream.ConsumerConfig{AckWait: time.Second}

// A message that comes again while it is held is handled once if that goes well,
// and each of its copies is acknowledged.
func TestConsumeHandlesNoCopyOfWhatItHolds(t *testing.T) {
	slow := overdueSoon
	slow.AckPolicy = jetstream.AckAllPolicy
	for _, tt := range []struct {
		name     string
		cfg      jetstream.ConsumerConfig
		messages int
		each     time.Duration
		opts     []Option
	}{
		{"running, beside free workers", overdueSoon, 1, 5500 * time.Millisecond, []Option{Concurrency(4)}},
		{"all workers running", overdueSoon, 4, 5500 * time.Millisecond, []Option{Concurrency(4)}},
		{"running, one worker", overdueSoon, 1, 5500 * time.Millisecond, nil},
		{"waiting", overdueSoon, 20, 310 * time.Millisecond, []Option{Prefetch(20)}},
		{"waiting and running", overdueSoon, 50, 310 * time.Millisecond, []Option{Prefetch(50), Concurrency(3)}},
		{"by key", overdueSoon, 20, 310 * time.Millisecond, []Option{OrderedBy((*Msg).Subject), Prefetch(20), Concurrency(3)}},
		{"ack policy all", slow, 20, 310 * time.Millisecond, []Option{Prefetch(20)}},
		{"ack policy all, running", slow, 1, 5500 * time.Millisecond, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onStage(t, tt.cfg, func(t *testing.T, s *stage) {
				var j journal
				r := s.consume(func(_ context.Context, m *Msg) error {
					j.note(m)
					// No two end at once: an acknowledgement and a copy could cross.
					<-time.After(tt.each + time.Duration(m.Sequence())*3*time.Millisecond)
					return nil
				}, append(tt.opts, KeepAlive(false))...)
				s.publish(tt.messages)
				pass(time.Minute)
				require.Greater(t, s.cseqs, tt.messages, "some came again")
				require.ElementsMatch(t, upTo(tt.messages), j.all())
				if tt.cfg.AckPolicy != jetstream.AckAllPolicy {
					require.Greater(t, s.count("+ACK", 0), tt.messages, "the newest copy of each is acknowledged too")
					require.LessOrEqual(t, s.count("+ACK", 0), s.cseqs)
				}
				require.Zero(t, s.unsettled())
				require.NoError(t, r.stop())
				require.Zero(t, s.count("-NAK", 0))
			})
		})
	}
}

// What was terminated is terminated, not acknowledged, when its copies' turn comes.
func TestConsumeTerminatesCopiesOfWhatIsTerminated(t *testing.T) {
	onStage(t, overdueSoon, func(t *testing.T, s *stage) {
		var calls atomic.Int64
		r := s.consume(func(context.Context, *Msg) error {
			calls.Add(1)
			<-time.After(2500 * time.Millisecond)
			return Terminate("no good", nil)
		}, Concurrency(2), KeepAlive(false))
		s.publish(1)
		pass(time.Minute)
		require.EqualValues(t, 1, calls.Load())
		require.Equal(t, 2, s.count("+TERM", 1), "it and the newest copy")
		require.Zero(t, s.count("+ACK", 0))
		require.NoError(t, r.stop())
	})
}

// A copy of a message whose handler fails is the next try, one at a time.
func TestConsumeHandlesACopyOfWhatFailed(t *testing.T) {
	for name, opts := range map[string][]Option{
		"workers": {Concurrency(4)}, "one worker": nil, "by key": {OrderedBy((*Msg).Subject), Concurrency(4)},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, overdueSoon, func(t *testing.T, s *stage) {
				var calls, running atomic.Int64
				r := s.consume(func(context.Context, *Msg) error {
					n := calls.Add(1)
					if running.Add(1) > 1 {
						t.Error("two handlers of one message at once")
					}
					defer running.Add(-1)
					if n == 1 {
						<-time.After(1500 * time.Millisecond)
						return errors.New("not yet")
					}
					return nil
				}, append(opts, KeepAlive(false))...)
				s.publish(1)
				pass(time.Minute)
				require.EqualValues(t, 2, calls.Load())
				require.Zero(t, s.unsettled())
				require.NoError(t, r.stop())
			})
		})
	}
}

// The loop of Messages gets no copy of what it has acknowledged meanwhile, and
// one of what it has not.
func TestMessagesYieldsNoCopyOfWhatIsAcknowledged(t *testing.T) {
	onStage(t, overdueSoon, func(t *testing.T, s *stage) {
		s.publish(10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var j journal
		for m, err := range s.sub.Messages(ctx, Prefetch(20), KeepAlive(false)) {
			require.NoError(t, err)
			times := j.note(m)
			<-time.After(300 * time.Millisecond)
			if m.Sequence() != 3 || times > 1 {
				require.NoError(t, m.Ack())
			}
			if j.len() == 11 {
				time.AfterFunc(10*time.Second, cancel)
			}
		}
		require.ElementsMatch(t, append(upTo(10), 3), j.all())
		require.Zero(t, s.unsettled())
	})
}

// At the end a copy of what still runs does not go back: another worker would have
// it while it is handled here. Of one that was not started the newest does.
func TestStopHandsBackNoCopyOfWhatRuns(t *testing.T) {
	onStage(t, overdueSoon, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(j.handler(2500*time.Millisecond), Prefetch(5), KeepAlive(false))
		s.publish(2)
		pass(1500 * time.Millisecond)
		require.Equal(t, 4, s.cseqs, "both came again")
		require.NoError(t, r.stop())
		require.Zero(t, s.count("-NAK", 1))
		require.Equal(t, 1, s.count("-NAK", 2))
		require.Equal(t, []int{1}, j.all())
		require.Equal(t, 1, s.count("+ACK", 1))
		s.do(func() { require.Equal(t, []int{2}, s.again, "it is there for others") })
	})
}

// What comes again has its turn before those that came later: with ack policy all
// their acknowledgement waits for it.
func TestDispatchPutsWhatComesAgainInItsPlace(t *testing.T) {
	for name, d := range map[string]*dispatch{"ack policy all": newDispatch(1, true, nil), "by key": byKey()} {
		t.Run(name, func(t *testing.T) {
			d.push(0, []*Msg{keyed(2, "a"), keyed(3, "a"), keyed(5, "a")})
			h := takeNow(t, d)
			copied := func(seq, cseq uint64) *Msg {
				m := delivered(2, seq, cseq)
				m.raw.Subject = "a"
				return m
			}
			d.push(0, []*Msg{copied(5, 7), copied(4, 8), copied(1, 9), keyed(6, "a")})
			for _, want := range []delivery{{1, 9}, {3, 3}, {4, 8}, {5, 5}, {5, 7}, {6, 6}} {
				d.settled(h)
				h = takeNow(t, d)
				require.Equal(t, want, h.m.delivery())
			}
		})
	}
}

// With delays a failed message's copies go back, as one, until the time has come;
// the last one that the server delivers does not.
func TestConsumeKeepsRetryDelaysWithCopies(t *testing.T) {
	for _, tt := range []struct {
		name string
		most int
		next time.Duration
	}{{"any", 0, 30 * time.Second}, {"the last", 2, 0}} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := overdueSoon
			cfg.MaxDeliver = tt.most
			onStage(t, cfg, func(t *testing.T, s *stage) {
				var failed, again time.Time
				var calls atomic.Int64
				r := s.consume(func(context.Context, *Msg) error {
					if calls.Add(1) > 1 {
						again = time.Now()
						return nil
					}
					<-time.After(2500 * time.Millisecond)
					failed = time.Now()
					return errors.New("not yet")
				}, KeepAlive(false), RetryDelays(30*time.Second))
				s.publish(1)
				pass(2 * time.Minute)
				require.NoError(t, r.stop())
				require.EqualValues(t, 2, calls.Load())
				requireNear(t, tt.next, again.Sub(failed), 100*time.Millisecond, "the next try")
				require.Zero(t, s.unsettled())
			})
		})
	}
}

// An acknowledgement that got lost is sent once more when its message comes again.
func TestConsumeAcknowledgesAgainWhatWasLost(t *testing.T) {
	for name, cfg := range map[string]jetstream.ConsumerConfig{"explicit": overdueSoon, "ack policy all": {AckPolicy: jetstream.AckAllPolicy, AckWait: time.Second}} {
		t.Run(name, func(t *testing.T) {
			onStage(t, cfg, func(t *testing.T, s *stage) {
				var j journal
				r := s.consume(j.handler(0))
				s.publish(5)
				pass(500 * time.Millisecond)
				require.Zero(t, s.unsettled())
				s.do(func() { // as if no acknowledgement had come
					s.floor = jetstream.SequenceInfo{}
					for seq := range 5 {
						s.pending[seq+1] = time.AfterFunc(time.Second+time.Duration(seq), func() { s.redeliver(seq + 1) })
					}
				})
				pass(10 * time.Second)
				require.Equal(t, 10, s.cseqs, "they came again")
				require.Equal(t, upTo(5), j.all())
				require.Zero(t, s.unsettled())
				require.NoError(t, r.stop())
			})
		})
	}
}

// A consumer that was made anew delivers messages for the first time that this
// Consume was done with. If one fails then, it comes again.
func TestConsumeHandlesWhatFailsAfterItWasDone(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			if j.note(m) == 2 {
				return errors.New("this time not")
			}
			return nil
		})
		s.publish(3)
		pass(time.Second)
		s.do(func() { s.next, s.delivered = 0, map[int]int{}; s.serve() })
		pass(time.Second)
		require.NoError(t, r.stop())
		require.ElementsMatch(t, append(upTo(3), 1, 1, 2, 2, 3, 3), j.all(), "each again, failed, and once more")
		require.Zero(t, s.unsettled())
	})
}

// Those pending beside a message whose acknowledgement got lost may be few, and yet
// many are handled before it comes again.
func TestConsumeKnowsWhatWasHandledLongAgo(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxAckPending: 10}, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(j.handler(0))
		s.publish(1)
		pass(time.Second)
		s.publish(4000)
		pass(time.Second)
		require.Equal(t, 4001, j.len())
		s.do(func() { // as if the first acknowledgement had not come
			s.again = append(s.again, 1)
			s.serve()
		})
		pass(time.Second)
		require.Equal(t, 4002, s.cseqs, "it came again")
		require.Equal(t, upTo(4001), j.all())
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
	})
}

func TestMemoryKeepsTheLast(t *testing.T) {
	m := memory{most: 3}
	for seq := range uint64(10) {
		m.add(settledMessage{reply: natstest.AckReply("S", "C", 1, seq, seq, time.Unix(0, 1), 0), fate: acknowledged})
	}
	for seq := range uint64(10) {
		want := undecided
		if seq >= 7 {
			want = acknowledged
		}
		require.Equal(t, want, m.fate(identity{seq, 1}), seq)
	}
	require.Equal(t, undecided, m.fate(identity{9, 2}), "of a stream that was made anew")
}
