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

// change gives the consumer another configuration.
func (s *stage) change(f func(*jetstream.ConsumerConfig)) {
	s.do(func() {
		f(&s.cfg)
		s.peer.SetConsumer("S", "C", s.cfg)
	})
}

// remake deletes the consumer, lets a while go by, and makes it anew.
func (s *stage) remake(f func(*jetstream.ConsumerConfig)) {
	s.peer.RemoveConsumer("S", "C")
	s.answer(503, "")
	s.endAll(409, "Consumer Deleted")
	pass(3 * time.Second)
	s.do(func() { s.floor = jetstream.SequenceInfo{Consumer: uint64(s.cseqs), Stream: uint64(s.next)} })
	s.change(f)
	s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", s.tell)
	s.relent()
}

// refuse makes the stage refuse pulls like a server whose consumer has the limits.
func (s *stage) refuse(text string, over func(natstest.Pull) bool) {
	s.do(func() {
		s.onPull = func(p natstest.Pull) bool {
			if over(p) {
				s.peer.Status(p.Reply, 409, text)
			}
			return over(p)
		}
	})
}

func deliveries(s *stage, seq int) (n int) {
	s.do(func() { n = s.delivered[seq] })
	return n
}

func secondAckWait(cfg *jetstream.ConsumerConfig) { cfg.AckWait = time.Second }

// A consumer that is made anew with a shorter AckWait is kept happy from its first
// message on.
func TestConsumeFollowsAConsumerThatIsMadeAnew(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(j.handler(3*time.Second), AwaitConsumer(), Concurrency(4))
		pass(time.Second)
		s.remake(secondAckWait)
		s.publish(8)
		created := time.Now()
		for j.len() == 0 {
			pass(time.Millisecond)
			require.LessOrEqual(t, time.Since(created), time.Second)
		}
		pass(20 * time.Second)
		require.Equal(t, 8, j.len(), "%v", j.all())
		for seq := range 8 {
			require.Equal(t, 1, deliveries(s, seq+1), "message %d is kept alive", seq+1)
		}
		require.Len(t, s.logs.with("configuration has changed"), 1)
		require.NoError(t, r.stop())
	})
}

// An AckWait that is shortened under a running Consume shows by a message that
// comes again while it is held.
func TestConsumeFollowsAShorterAckWait(t *testing.T) {
	for _, workers := range []int{1, 4} {
		onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
			var j journal
			r := s.consume(j.handler(2500*time.Millisecond), Concurrency(workers))
			pass(20 * time.Second)
			s.change(secondAckWait)
			s.publish(1)
			pass(10 * time.Second)
			require.LessOrEqual(t, deliveries(s, 1), 2, "the first copy gives it away")
			s.publish(1)
			pass(10 * time.Second)
			require.Equal(t, 1, deliveries(s, 2))
			require.Equal(t, upTo(2), j.all())
			require.NoError(t, r.stop())
		})
	}
}

// A server that delivers all again and again is asked no more than every ten seconds.
func TestConsumeReadsTheConfigurationSeldom(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(j.handler(time.Minute), KeepAlive(false), Concurrency(4))
		asked := 0
		s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", func(p *natstest.Peer, req natstest.Request) {
			s.do(func() { asked++ })
			s.tell(p, req)
		})
		s.do(func() { s.cfg.AckWait = 100 * time.Millisecond })
		s.publish(4)
		pass(50 * time.Second)
		s.do(func() {
			require.GreaterOrEqual(t, asked, 1)
			require.LessOrEqual(t, asked, 6)
		})
		r.cancel()
		require.NoError(t, r.result())
	})
}

// What a new call would refuse ends the one that runs, before a message of the new
// consumer has come.
func TestConsumeEndsWithAConsumerThatNoLongerFits(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  jetstream.ConsumerConfig
		opts []Option
		to   func(*jetstream.ConsumerConfig)
		want error
		says string
	}{
		{
			name: "ack policy all with workers", opts: []Option{Concurrency(4)},
			to:   func(cfg *jetstream.ConsumerConfig) { cfg.AckPolicy = jetstream.AckAllPolicy },
			want: ErrInvalidOption, says: "Concurrency",
		},
		{
			name: "attempts", cfg: jetstream.ConsumerConfig{MaxDeliver: 5}, opts: []Option{MaxAttempts(5)},
			to:   func(cfg *jetstream.ConsumerConfig) { cfg.MaxDeliver = 3 },
			want: ErrInvalidOption, says: "MaxAttempts",
		},
		{
			name: "a group", to: func(cfg *jetstream.ConsumerConfig) {
				cfg.PriorityPolicy, cfg.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"g"}
			},
			want: ErrInvalidOption, says: "Group",
		},
		{
			name: "ack policy all", to: func(cfg *jetstream.ConsumerConfig) { cfg.AckPolicy = jetstream.AckAllPolicy },
			want: ErrConsumerDeleted, says: "ack policy all",
		},
		{
			name: "ack policy none", to: func(cfg *jetstream.ConsumerConfig) { cfg.AckPolicy = jetstream.AckNonePolicy },
			want: ErrConsumerDeleted, says: "ack policy none",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, tc.cfg, func(t *testing.T, s *stage) {
				var j journal
				opts := append([]Option{AwaitConsumer()}, tc.opts...)
				r := s.consume(j.handler(0), opts...)
				pass(time.Second)
				s.publish(20)
				pass(time.Second)
				s.remake(tc.to)
				s.publish(20)
				err := r.result()
				require.ErrorIs(t, err, tc.want)
				require.ErrorContains(t, err, tc.says)
				require.Equal(t, 20, j.len(), "none of the new consumer")
				again := s.consume(j.handler(0), opts...)
				if errors.Is(tc.want, ErrInvalidOption) {
					err := again.result()
					require.ErrorIs(t, err, tc.want, "a new call is told the same")
					require.ErrorContains(t, err, tc.says)
					return
				}
				pass(time.Second)
				require.Equal(t, 40, j.len())
				require.NoError(t, again.stop())
			})
		})
	}
}

func TestMessagesEndsWithAConsumerThatNoLongerFits(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		time.AfterFunc(time.Second, func() {
			s.remake(func(cfg *jetstream.ConsumerConfig) { cfg.AckPolicy = jetstream.AckNonePolicy })
		})
		var end error
		for m, err := range s.sub.Messages(t.Context(), AwaitConsumer()) {
			require.Nil(t, m)
			end = err
		}
		require.ErrorIs(t, end, ErrConsumerDeleted)
		require.ErrorContains(t, end, "call Messages again")
	})
}

// Limits that are lowered are taken over where the client chose what it asked for.
func TestConsumeGoesByLimitsThatAreLowered(t *testing.T) {
	for _, tc := range []struct {
		text string
		opts []Option
		to   func(*jetstream.ConsumerConfig)
		over func(natstest.Pull) bool
	}{
		{
			"Exceeded MaxRequestBatch of 4", nil,
			func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestBatch = 4 },
			func(p natstest.Pull) bool { return p.Req.Batch > 4 },
		},
		{
			"Exceeded MaxRequestExpires of 3s", nil,
			func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestExpires = 3 * time.Second },
			func(p natstest.Pull) bool { return p.Req.Expires > 3*time.Second },
		},
		{
			"Exceeded MaxRequestMaxBytes of 1000",
			[]Option{PrefetchBytes(5000)},
			func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestMaxBytes = 1000 },
			func(p natstest.Pull) bool { return p.Req.MaxBytes > 1000 },
		},
	} {
		t.Run(tc.text, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				var j journal
				r := s.consume(j.handler(0), append(tc.opts, Concurrency(16))...)
				pass(time.Second)
				s.change(tc.to)
				s.refuse(tc.text, tc.over)
				pass(time.Minute) // the pulls that are open run out
				s.publish(100)
				pass(time.Second)
				require.True(t, r.running())
				require.Equal(t, 100, j.len())
				over := 0
				s.do(func() {
					for _, req := range s.asked[1:] {
						if tc.over(natstest.Pull{Req: req}) {
							over++
						}
					}
				})
				require.LessOrEqual(t, over, 1)
				require.Len(t, s.logs.with("level=WARN"), 1)
				require.NoError(t, r.stop())
			})
		})
	}
}

// A server that goes on refusing what its configuration allows ends Consume.
func TestConsumeEndsWhereALimitDoesNotExplainTheRefusal(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.change(func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestBatch = 4 })
		s.answer(409, "Exceeded MaxRequestBatch of 4")
		r := s.consume(func(context.Context, *Msg) error { return nil })
		require.ErrorIs(t, r.result(), ErrLimitExceeded)
		require.Equal(t, 2, s.pullCount())
	})
}

// An answer that was on its way when the consumer was deleted is about the old one.
func TestAReadingFromBeforeADeletionIsNotTaken(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	needs := w.r.needs
	w.r.wonder(w.now)
	w.did()
	require.Equal(t, 1, w.wonders)
	w.r.wonder(w.now)
	w.did()
	require.Equal(t, 1, w.wonders, "one at a time")
	w.status(p, 409, "Consumer Deleted")
	w.r.found(w.now, limits{}, needs)
	w.did()
	w.pass(time.Minute)
	w.quiet()
	require.GreaterOrEqual(t, w.checks, 50, "it goes on asking, though no answer comes")
	require.LessOrEqual(t, w.checks, 90)
	w.r.found(w.now, limits{batch: 3}, w.r.needs)
	w.did()
	require.Equal(t, 3, w.pulled(pullStream)[0].req.Batch)
}

// Next chooses how long its pull waits unless MaxWait says so.
func TestNextGoesByLimitsThatAreLowered(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.change(func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestExpires = time.Second })
		s.refuse("Exceeded MaxRequestExpires of 1s", func(p natstest.Pull) bool { return p.Req.Expires > time.Second })
		_, err := s.sub.Next(t.Context(), MaxWait(3*time.Second))
		require.ErrorIs(t, err, ErrLimitExceeded, "the user asked for it")
		time.AfterFunc(2*time.Second, func() { s.publish(1) })
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(1), m.Sequence())
		require.NoError(t, m.Ack())
	})
}

// Many calls share a pull, and none of them asked for its batch.
func TestNextCallsThatShareAPullGoByALowerBatch(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.change(func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestBatch = 4 })
		s.refuse("Exceeded MaxRequestBatch of 4", func(p natstest.Pull) bool { return p.Req.Batch > 4 })
		s.publish(20)
		errs := make(chan error, 20)
		for range 20 {
			go func() {
				m, err := s.sub.Next(t.Context())
				if err == nil {
					err = m.Ack()
				}
				errs <- err
			}()
		}
		for range 20 {
			require.NoError(t, <-errs)
		}
		_, err := s.sub.Fetch(t.Context(), 5)
		require.ErrorIs(t, err, ErrLimitExceeded, "here the user asked for it")
	})
}

// A pin that is lost has its TTL read again.
func TestConsumeFollowsAPinsTTL(t *testing.T) {
	onStage(t, pinnedConfig, func(t *testing.T, s *stage) {
		r := s.consume(func(context.Context, *Msg) error { return nil }, Group("g"))
		s.publishTo("s.a", map[string][]string{"Nats-Pin-Id": {"one"}}, "1")
		pass(2 * time.Minute)
		s.change(func(cfg *jetstream.ConsumerConfig) { cfg.PinnedTTL = 3 * time.Second })
		s.endAll(423, "Nats-Pin-Id mismatch")
		pass(time.Second)
		s.publishTo("s.a", map[string][]string{"Nats-Pin-Id": {"two"}}, "2")
		pass(time.Second)
		from := time.Now()
		pass(30 * time.Second)
		require.GreaterOrEqual(t, s.pullsSince(from), 25, "the pin is refreshed in a third of its time")
		require.NoError(t, r.stop())
	}, Group("g"))
}

// A call that does not depend on the configuration goes on without it, and has it
// read for those after it.
func TestNextHasTheConfigurationReadOfAConsumerThatWasGone(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	w.status(w.pulled(pullStream)[0], 409, "Consumer Deleted")
	w.r.leave(w.now, w.posted[0], nil)
	w.did()
	w.pass(time.Second)
	require.Zero(t, w.checks, "nobody waits for it")
	c := w.post(1, time.Second)
	require.Equal(t, 1, w.wonders)
	w.deliver(w.pulled(pullQuick)[0], 1)
	w.ended(c, 1, nil)
}
