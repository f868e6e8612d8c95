package jetpull

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// answer makes the stage answer all pulls with a status, at once.
func (s *stage) answer(code int, desc string) {
	s.do(func() {
		s.onPull = func(p natstest.Pull) bool {
			s.peer.Status(p.Reply, code, desc)
			return true
		}
	})
}

// relent makes the stage serve pulls again.
func (s *stage) relent() { s.do(func() { s.onPull = nil }) }

// requireBounded checks that no second of a stretch saw more than n pulls.
func requireBounded(t *testing.T, s *stage, from time.Time, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, at := range s.pullsAt {
		if at.Before(from) || i < n || s.pullsAt[i-n].Before(from) {
			continue
		}
		require.GreaterOrEqual(t, at.Sub(s.pullsAt[i-n]), time.Second, "more than %d pulls within a second", n)
	}
}

// TestConsumeBacksOffAndComesBack: the server refuses to serve for a while in
// every way it has. Few requests go out meanwhile, and messages flow within a
// second of its being possible.
func TestConsumeBacksOffAndComesBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		code int
		desc string
		is   error
	}{
		{"503", 503, "", ErrNoResponders},
		{"leadership change", 409, "Leadership Change", ErrLeadershipChanged},
		{"server shutdown", 409, "Server Shutdown", ErrServerShutdown},
		{"max waiting", 409, "Exceeded MaxWaiting", ErrMaxWaiting},
		{"a 409 of a newer server", 409, "Something New", ErrTimeout},
		{"a code of a newer server", 499, "Something New", ErrTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				var j journal
				s.publish(10)
				r := s.consume(j.handler(0))
				for round := range 3 {
					pass(time.Second)
					from := time.Now()
					before := len(r.errs.all())
					s.answer(tc.code, tc.desc)
					s.endAll(tc.code, tc.desc)
					pass(20 * time.Second)
					requireBounded(t, s, from, 6)
					require.GreaterOrEqual(t, s.pullsSince(from), 20, "it goes on trying, or it could not be back within a second")
					problems := r.errs.all()[before:]
					require.GreaterOrEqual(t, len(problems), 20, "OnError hears of each")
					for _, err := range problems {
						require.ErrorIs(t, err, tc.is)
					}
					require.Len(t, s.logs.with("disturbed"), round+1, "one line a change: %v", s.logs.with("jetpull"))
					s.relent()
					s.publish(10)
					back := time.Now()
					for j.len() < 20+10*round {
						pass(time.Millisecond)
						require.LessOrEqual(t, time.Since(back), time.Second, "pulling again takes too long")
					}
					require.Len(t, s.logs.with("arrive again"), round+1)
				}
				require.True(t, r.running())
				require.NoError(t, r.stop())
				require.Equal(t, upTo(40), j.all())
			})
		})
	}
}

// TestADisturbanceThatComesAgainIsLoggedAgain: no message arrives in between,
// and the problem is the same.
func TestADisturbanceThatComesAgainIsLoggedAgain(t *testing.T) {
	for _, cfg := range []jetstream.ConsumerConfig{{}, {AckPolicy: jetstream.AckNonePolicy}, {AckWait: time.Hour}} {
		onStage(t, cfg, func(t *testing.T, s *stage) {
			r := s.consume(func(context.Context, *Msg) error { return nil })
			for round := range 3 {
				pass(time.Minute)
				s.answer(409, "Leadership Change")
				s.endAll(409, "Leadership Change")
				pass(time.Minute)
				require.Len(t, s.logs.with("disturbed"), 2*round+1, "one line a change: %v", s.logs.with("jetpull"))
				s.relent()
			}
			pass(time.Hour)
			s.answer(409, "Leadership Change")
			s.endAll(409, "Leadership Change")
			pass(time.Second)
			require.Len(t, s.logs.with("is disturbed"), 4)
			require.Len(t, s.logs.with("no longer disturbed"), 3)
			require.NoError(t, r.stop())
		})
	}
}

// TestASilentServerIsOneDisturbance: the problems of one are far apart.
func TestASilentServerIsOneDisturbance(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		r := s.consume(func(context.Context, *Msg) error { return nil })
		pass(time.Second)
		s.peer.Pause(true)
		pass(5 * time.Minute)
		require.Len(t, s.logs.with("is disturbed"), 1, "%v", s.logs.with("jetpull"))
		require.Empty(t, s.logs.with("no longer disturbed"))
		s.peer.Pause(false)
		pass(time.Minute)
		require.Len(t, s.logs.with("no longer disturbed"), 1)
		require.NoError(t, r.stop())
	})
}

func TestConsumeEndsWhereNoRetryHelps(t *testing.T) {
	for _, tc := range []struct {
		code int
		desc string
		is   error
	}{
		{400, "Bad Request - Priority Group missing", ErrBadRequest},
		{409, "Exceeded MaxRequestBatch of 1", ErrLimitExceeded},
		{409, "Exceeded MaxRequestExpires of 1s", ErrLimitExceeded},
		{409, "Consumer is push based", ErrNotPull},
		{409, "Consumer Deleted", ErrConsumerDeleted},
		{412, "Required Api Level", ErrBadRequest},
	} {
		t.Run(tc.desc, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				s.answer(tc.code, tc.desc)
				r := s.consume(func(context.Context, *Msg) error { return nil })
				err := r.result()
				require.ErrorIs(t, err, tc.is)
				var status *StatusError
				require.ErrorAs(t, err, &status)
				require.Equal(t, tc.desc, status.Description)
				pass(time.Minute)
				require.LessOrEqual(t, s.pullCount(), 2)
			})
		})
	}
}

func TestConsumeEndsWithADeletedConsumer(t *testing.T) {
	for _, silent := range []bool{false, true} {
		onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
			s.publish(5)
			var j journal
			r := s.consume(j.handler(0))
			s.peer.RemoveConsumer("S", "C")
			s.answer(503, "")
			if silent {
				// No server is there to say it: the 503 of the next pull and the
				// consumer's info do.
				s.endAll(408, "Request Timeout")
			} else {
				s.endAll(409, "Consumer Deleted")
			}
			deleted := time.Now()
			require.ErrorIs(t, r.result(), ErrConsumerDeleted)
			require.LessOrEqual(t, time.Since(deleted), time.Second)
			require.Equal(t, upTo(5), j.all())
			require.Positive(t, countIs(r.errs.all(), ErrConsumerDeleted))
		})
	}
}

func TestAwaitConsumer(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(5)
		var j journal
		r := s.consume(j.handler(0), AwaitConsumer())
		for round := range 2 {
			pass(time.Second)
			s.peer.RemoveConsumer("S", "C")
			s.answer(503, "")
			deleted := time.Now()
			s.endAll(409, "Consumer Deleted")
			pass(10 * time.Minute)
			require.True(t, r.running())
			requireBounded(t, s, deleted, 6)
			require.Len(t, s.logs.with("level=WARN"), round+1, "one line a change: %v", s.logs.with("jetpull"))
			s.peer.SetConsumer("S", "C", s.cfg)
			s.relent()
			s.publish(5)
			created := time.Now()
			for j.len() < 10+5*round {
				pass(time.Millisecond)
				require.LessOrEqual(t, time.Since(created), time.Second)
			}
		}
		require.NoError(t, r.stop())
		require.Positive(t, countIs(r.errs.all(), ErrConsumerDeleted))
	})
}

func countIs(errs []error, target error) (n int) {
	for _, err := range errs {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

func TestConsumeComesBackAfterMissedHeartbeats(t *testing.T) {
	for _, tc := range []struct {
		opts  []Option
		takes time.Duration
	}{
		{nil, 2*shortBeat + expiresMargin},
		{[]Option{Heartbeat(300 * time.Millisecond)}, 700 * time.Millisecond},
	} {
		onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
			var j journal
			r := s.consume(j.handler(0), tc.opts...)
			pass(12 * time.Second)
			require.Empty(t, r.errs.all(), "while heartbeats come all is well")
			s.forgetAll()
			lost := time.Now()
			s.publish(3)
			for j.len() < 3 {
				pass(10 * time.Millisecond)
				require.LessOrEqual(t, time.Since(lost), tc.takes+20*time.Millisecond)
			}
			require.Len(t, r.errs.all(), 1)
			require.Len(t, s.logs.with("disturbed"), 1)
			require.Len(t, s.logs.with("arrive again"), 1)
			require.NoError(t, r.stop())
		})
	}
}

func TestConsumeIdlePullsOncePerExpiry(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  jetstream.ConsumerConfig
		opts []Option
	}{
		{"plain, empty or paused", jetstream.ConsumerConfig{}, nil},
		{"stand-by of a pinned group", pinnedConfig, []Option{Group("g")}},
		{"overflow under its threshold", jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"g"}}, []Option{Group("g"), MinPending(100)}},
		{"prioritized behind another", jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"g"}}, []Option{Group("g"), Priority(9)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, tc.cfg, func(t *testing.T, s *stage) {
				r := s.consume(func(context.Context, *Msg) error { return nil }, append(tc.opts, Concurrency(4))...)
				pass(time.Hour)
				var expires time.Duration
				s.do(func() { expires = s.asked[0].Expires })
				require.LessOrEqual(t, s.pullCount(), int(time.Hour/expires)+2)
				require.GreaterOrEqual(t, s.pullCount(), int(time.Hour/expires)-2)
				require.Empty(t, r.errs.all())
				require.NoError(t, r.stop())
			}, tc.opts...)
		})
	}
}

func TestConsumeAtMaxAckPending(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxAckPending: 5, AckWait: 10 * time.Second}, func(t *testing.T, s *stage) {
		s.publish(100)
		var j journal
		go_ := make(chan struct{})
		r := s.consume(func(_ context.Context, m *Msg) error {
			j.note(m)
			<-go_
			return nil
		}, Concurrency(8))
		from := time.Now()
		pass(10 * time.Minute)
		require.Equal(t, 5, j.len())
		requireBounded(t, s, from.Add(time.Second), 3)
		require.LessOrEqual(t, s.pullsSince(from), 45)
		close(go_)
		pass(time.Second)
		require.Equal(t, 100, j.len(), "all within a second, each once")
		require.NoError(t, r.stop())
	})
}

// TestConsumeAtMaxWaiting: the server drops pulls without a word where they ask
// for heartbeats, and refuses the others.
func TestConsumeAtMaxWaiting(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.do(func() {
			s.onPull = func(p natstest.Pull) bool {
				if p.Req.Heartbeat == 0 {
					s.peer.Status(p.Reply, 409, "Exceeded MaxWaiting")
				}
				return true
			}
		})
		var j journal
		s.publish(10)
		from := time.Now()
		r := s.consume(j.handler(0))
		pass(10 * time.Minute)
		requireBounded(t, s, from, 3)
		require.Positive(t, countIs(r.errs.all(), ErrMaxWaiting))
		s.relent()
		pass(time.Second)
		require.Equal(t, 10, j.len())
		require.NoError(t, r.stop())
	})
}

func TestConsumeOverCutConnections(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(j.handler(time.Millisecond), Concurrency(3))
		for i := range 50 {
			s.publish(20)
			pass(time.Duration(i%20) * time.Millisecond)
			down := time.Duration(i%4) * time.Second
			s.peer.Refuse(true)
			s.peer.Cut()
			s.forgetAll()
			pass(down)
			s.peer.Refuse(false)
			s.publish(1)
			back := time.Now()
			for s.pullsSince(back) == 0 {
				pass(time.Millisecond)
				require.LessOrEqual(t, time.Since(back), time.Second, "round %d", i)
			}
		}
		pass(2 * time.Minute)
		require.Equal(t, 50*21, s.ackedCount())
		require.Zero(t, s.unsettled())
		require.GreaterOrEqual(t, s.sub.Stats().Reconnects, uint64(45), "some cuts hit a connection that is being made")
		require.NoError(t, r.stop())
		require.Zero(t, s.sub.Stats().Outstanding)
	})
}

// TestConsumeSilentNetwork: nothing gets through in either direction for a
// while, and then all of it does.
func TestConsumeSilentNetwork(t *testing.T) {
	for _, silence := range []time.Duration{5 * time.Second, 12 * time.Second, 45 * time.Second} {
		onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
			var j journal
			r := s.consume(j.handler(time.Millisecond))
			s.publish(100)
			pass(20 * time.Millisecond)
			s.peer.Pause(true)
			pass(silence)
			s.publish(100)
			s.peer.Pause(false)
			back := time.Now()
			for j.len() < 200 {
				pass(10 * time.Millisecond)
				require.LessOrEqual(t, time.Since(back), time.Second, "%v of silence", silence)
			}
			pass(time.Minute)
			require.Equal(t, 200, s.ackedCount())
			require.NoError(t, r.stop())
		})
	}
}
