package jetpull

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// failsFor fails for the bodies that are given, and notes all.
func failsFor(j *journal, bodies ...string) Handler {
	return func(ctx context.Context, m *Msg) error {
		j.note(m)
		if slices.Contains(bodies, string(m.Data())) {
			return alwaysFails(ctx, m)
		}
		return nil
	}
}

// bodies are the messages whose dead letters are stored.
func (g *graveyard) bodies() (got []string) {
	g.s.do(func() {
		for _, d := range g.dead {
			got = append(got, d.body)
		}
	})
	return got
}

// TestAMessageWithoutADeadLetterHoldsNoWorker: the copy is refused for a long
// time, and the others go on meanwhile.
func TestAMessageWithoutADeadLetterHoldsNoWorker(t *testing.T) {
	for name, opts := range map[string][]Option{
		"by default":      nil,
		"KeepAlive off":   {KeepAlive(false)},
		"no read-ahead":   {Prefetch(1)},
		"few bytes":       {PrefetchBytes(100)},
		"several at once": {Concurrency(3)},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{MaxDeliver: 2, AckWait: 4 * time.Second}, func(t *testing.T, s *stage) {
				g := newGraveyard(t, s)
				g.full = true
				s.publish(20)
				var j journal
				r := s.consume(failsFor(&j, "1"), append(opts, MaxAttempts(2), DeadLetter("dead.letters"))...)
				pass(time.Second)
				require.Equal(t, 21, j.len(), "all of them, and the first once more")
				require.Equal(t, 19, s.ackedCount())
				pass(20 * time.Minute)
				require.Equal(t, 1, s.sub.Stats().Running)
				require.Zero(t, s.count("+TERM", 1))
				require.GreaterOrEqual(t, s.count("+WPI", 1), 20*60/4, "kept alive, or the server would be done with it")
				require.LessOrEqual(t, g.tries, 28, "one a minute in the end")
				require.GreaterOrEqual(t, g.tries, 20)
				require.Equal(t, g.tries, countWith(r.errs.all(), "maximum allowed"))
				require.Len(t, s.logs.with("set aside"), 1)
				s.do(func() { g.full = false })
				pass(buryLast + time.Second)
				require.Equal(t, []string{"1"}, g.bodies())
				require.Equal(t, 1, s.count("+TERM", 1))
				require.Equal(t, 1, s.count("-NAK", 1), "after the first delivery")
				require.Len(t, s.logs.with("all dead letters are stored"), 1)
				require.Zero(t, s.sub.Stats().Running)
				before := s.count("+WPI", 1)
				pass(time.Minute)
				require.Equal(t, before, s.count("+WPI", 1))
				require.NoError(t, r.stop())
				require.Zero(t, s.unsettled())
			})
		})
	}
}

// TestAMessageAsideHoldsItsKey: those behind it wait, those of other keys do not,
// and more of them come than the window has room for.
func TestAMessageAsideHoldsItsKey(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1, AckWait: 4 * time.Second}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.full = true
		s.publishTo("s.a", nil, "bad")
		for i := range 40 {
			s.publishTo("s.a", nil, fmt.Sprintf("a%d", i))
		}
		for i := range 40 {
			s.publishTo("s.b", nil, fmt.Sprintf("b%d", i))
		}
		var j journal
		r := s.consume(failsFor(&j, "bad"), OrderedBy((*Msg).Subject), Prefetch(8), MaxAttempts(1), DeadLetter("dead.letters"))
		pass(10 * time.Minute)
		require.Equal(t, append([]int{1}, upTo(81)[41:]...), j.all())
		s.do(func() { g.full = false })
		pass(buryLast + time.Second)
		require.Equal(t, upTo(41)[1:], j.all()[41:], "in order")
		require.Equal(t, []string{"bad"}, g.bodies())
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
	})
}

// TestSoManyMessagesAreSetAside: half of MaxAckPending, and then the worker waits.
func TestSoManyMessagesAreSetAside(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1, MaxAckPending: 10}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.full = true
		s.publish(20)
		var j journal
		r := s.consume(func(ctx context.Context, m *Msg) error { j.note(m); return alwaysFails(ctx, m) },
			MaxAttempts(1), DeadLetter("dead.letters"))
		pass(20 * time.Minute)
		require.Equal(t, upTo(6), j.all(), "five are aside, and the worker has one")
		require.Equal(t, 6, s.sub.Stats().Running)
		require.Len(t, s.logs.with("workers wait"), 1)
		require.Zero(t, s.count("-NAK", 0)+s.count("+TERM", 0))
		s.do(func() { g.full = false })
		pass(buryLast + time.Second)
		require.Len(t, g.bodies(), 20)
		require.Equal(t, 20, s.count("+TERM", 0))
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
	})
}

// TestTheWorkerGoesOnWhenThereIsRoomAside: one dead letter is stored at last, and
// the next one is still refused.
func TestTheWorkerGoesOnWhenThereIsRoomAside(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1, MaxAckPending: 3}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.full = true
		s.publish(3)
		var j journal
		r := s.consume(failsFor(&j, "1", "2"), MaxAttempts(1), DeadLetter("dead.letters"))
		pass(10 * time.Minute)
		require.Equal(t, upTo(2), j.all())
		s.do(func() { g.full, g.only = false, deadID(1) })
		pass(buryLast + time.Second)
		require.Equal(t, []string{"1"}, g.bodies())
		require.Equal(t, upTo(3), j.all())
		s.do(func() { g.only = "" })
		pass(buryLast + time.Second)
		require.Equal(t, []string{"1", "2"}, g.bodies())
		require.NoError(t, r.stop())
	})
}

// TestTheDrainTriesAtOnceForWhatIsAside: it does not wait for the next minute.
func TestTheDrainTriesAtOnceForWhatIsAside(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.full = true
		s.publish(2)
		r := s.consume(failsFor(&journal{}, "1"), MaxAttempts(1), DeadLetter("dead.letters"))
		pass(10 * time.Minute)
		r.cancel()
		pass(5 * time.Second)
		require.True(t, r.running())
		s.do(func() { g.full = false })
		stored := time.Now()
		require.NoError(t, r.result())
		require.LessOrEqual(t, time.Since(stored), buryAgain)
		require.Equal(t, []string{"1"}, g.bodies())
		require.Equal(t, 1, s.count("+TERM", 1))
	})
}

func TestTheDrainHandsBackWhatIsAside(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1, AckWait: time.Hour}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.full = true
		s.publish(3)
		r := s.consume(failsFor(&journal{}, "1", "2"), MaxAttempts(1), DeadLetter("dead.letters"), DrainTimeout(3*time.Second))
		pass(10 * time.Minute)
		stopped := time.Now()
		err := r.stop()
		require.ErrorIs(t, err, ErrDrainTimeout)
		require.ErrorContains(t, err, "2 messages at their last delivery")
		require.Equal(t, 3*time.Second, time.Since(stopped))
		require.Equal(t, 2, s.count("-NAK", 0))
		require.Equal(t, 1, s.count("-NAK", 1))
		require.Zero(t, s.count("+TERM", 0))
		require.Equal(t, 2, countWith(r.errs.all(), "has no dead letter"))
		tries := g.tries
		pass(time.Hour)
		require.Equal(t, tries, g.tries)
		require.Zero(t, s.sub.Stats().Running)
	})
}

func TestWhatIsAsideIsBounded(t *testing.T) {
	size := func(n int) held { return held{m: &Msg{}, size: n} }
	s := &Subscription{}
	s.ackNone.Store(true)
	t.Run("by number", func(t *testing.T) {
		a := newAside(s, 0)
		var hs []held
		for i := range asideMost {
			hs = append(hs, size(10))
			added, first, _ := a.add(hs[i])
			require.True(t, added)
			require.Equal(t, i == 0, first)
		}
		added, _, full := a.add(size(10))
		require.False(t, added)
		require.True(t, full)
		_, _, full = a.add(size(10))
		require.False(t, full, "it has been told")
		for i, h := range hs {
			require.Equal(t, asideMost-i, a.len())
			require.Equal(t, i == asideMost-1, a.remove(h))
		}
		added, first, full := a.add(size(10))
		require.True(t, added && first && !full)
		a.timer.Stop()
	})
	t.Run("by size", func(t *testing.T) {
		a := newAside(s, 0)
		for _, n := range []int{asideBytes / 2, asideBytes / 2} {
			added, _, _ := a.add(size(n))
			require.True(t, added)
		}
		added, _, _ := a.add(size(1))
		require.False(t, added)
		a.timer.Stop()
	})
	t.Run("one always fits", func(t *testing.T) {
		a := newAside(s, 100)
		added, _, _ := a.add(size(2 * asideBytes))
		require.True(t, added)
		added, _, _ = a.add(size(1))
		require.False(t, added)
		a.timer.Stop()
	})
}

// TestNothingIsStoredOnAClosedConnection: Consume says so at once, and does not
// wait until the drain is over.
func TestNothingIsStoredOnAClosedConnection(t *testing.T) {
	const drain = 10 * time.Second
	for name, tc := range map[string]struct {
		cfg    jetstream.ConsumerConfig
		opts   []Option
		before func(*stage, *graveyard, *run)
		lost   int
	}{
		"while it consumes":    {lost: 2},
		"while it drains":      {before: func(_ *stage, _ *graveyard, r *run) { r.cancel(); pass(5*time.Second + buryAgain/2) }, lost: 2},
		"while a worker waits": {cfg: jetstream.ConsumerConfig{MaxAckPending: 2}, lost: 2},
		"with ack policy all":  {cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}, lost: 2},
		"ordered by key":       {opts: []Option{OrderedBy((*Msg).Subject)}, lost: 2},
		"during a try":         {before: func(s *stage, g *graveyard, _ *run) { s.do(func() { g.down = true }); pass(buryLast + time.Second) }, lost: 2},
		"after the Subscription's": {before: func(s *stage, _ *graveyard, _ *run) {
			require.NoError(s.t, s.sub.Close(s.t.Context()))
			pass(buryAgain)
		}, lost: 2},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tc.cfg
			cfg.MaxDeliver = 1
			onStage(t, cfg, func(t *testing.T, s *stage) {
				g := newGraveyard(t, s)
				g.full = true
				s.publish(3)
				r := s.consume(failsFor(&journal{}, "1", "2"), append(tc.opts, MaxAttempts(1), DeadLetter("dead.letters"), DrainTimeout(drain))...)
				pass(10 * time.Minute)
				if tc.before != nil {
					tc.before(s, g, r)
				}
				require.True(t, r.running())
				tries := g.tries
				closed := time.Now()
				s.nc.Close()
				err := r.result()
				require.LessOrEqual(t, time.Since(closed), buryAgain)
				if name != "after the Subscription's" { // whose goroutines look after the connection
					require.Zero(t, time.Since(closed))
					require.Equal(t, tc.lost, countWith(r.errs.all(), "was delivered for the last time and has no dead letter"))
				}
				require.ErrorIs(t, err, ErrClosed)
				require.ErrorIs(t, err, nats.ErrConnectionClosed)
				require.NotErrorIs(t, err, ErrDrainTimeout)
				require.ErrorContains(t, err, fmt.Sprintf("%d messages at their last delivery have no dead letter stored", tc.lost))
				require.ErrorContains(t, err, fmt.Sprintf("sequences %v", upTo(tc.lost)))
				require.Equal(t, tries, g.tries)
				require.Zero(t, s.sub.Stats().Running)
				require.Empty(t, s.logs.with("all dead letters are stored"))
			})
		})
	}
}

// TestWhatIsStoredDuringATryIsHeardOf: another dead letter is stored while one is
// just being refused, and that it may be stored now is not missed.
func TestWhatIsStoredDuringATryIsHeardOf(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		const after, slow = 100 * time.Millisecond, 300 * time.Millisecond
		started := time.Now()
		tries := map[string]int{}
		stored := map[string]time.Duration{}
		s.peer.OnRequest("dead.letters", func(p *natstest.Peer, r natstest.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			id := parseHeader(t, r.Header).Get("Nats-Msg-Id")
			tries[id]++
			refuse := func() {
				p.ReplyJSON(r.Reply, map[string]any{"error": map[string]any{"code": 400, "err_code": 10054, "description": "full"}})
			}
			switch {
			case tries[id] == 1:
				refuse()
			case tries[id] == 2 && id == deadID(2):
				time.AfterFunc(slow, refuse) // it began before there was room
			default:
				stored[id] = time.Since(started)
				p.ReplyJSON(r.Reply, map[string]any{"stream": g.owner, "seq": len(stored)})
			}
		})
		s.publish(2)
		r := s.consume(func(ctx context.Context, m *Msg) error {
			if m.Sequence() == 1 {
				<-time.After(after)
			}
			return alwaysFails(ctx, m)
		}, Concurrency(2), MaxAttempts(1), DeadLetter("dead.letters"))
		pass(time.Minute)
		require.Equal(t, map[string]time.Duration{deadID(1): buryAgain + after, deadID(2): buryAgain + slow}, stored)
		require.NoError(t, r.stop())
	})
}
