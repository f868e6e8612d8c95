package jetpull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// endShort ends all open pulls with a status that counts n messages more than they
// got, or as many as they asked for.
func (s *stage) endShort(n int) {
	s.do(func() {
		for _, p := range s.pulls {
			p.left -= min(n, p.left)
		}
	})
	s.endAll(408, "Request Timeout")
}

// TestMessagesThatWerePromisedAndNeverComeHoldNothingUp: a status counts messages
// that the server had given to the pull, and they were lost, as with the leader
// that led the consumer. Others are there.
func TestMessagesThatWerePromisedAndNeverComeHoldNothingUp(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg    jetstream.ConsumerConfig
		opts   []Option
		before func(*stage)
		lost   int
	}{
		"after an idle time":  {before: func(*stage) { pass(time.Minute) }, lost: 1},
		"a whole batch":       {before: func(*stage) { pass(time.Minute) }, lost: 1000},
		"after a new leader":  {before: func(s *stage) { s.endAll(409, "Leadership Change"); pass(500 * time.Millisecond) }, lost: 1},
		"no read-ahead":       {opts: []Option{Prefetch(1)}, lost: 1},
		"little read-ahead":   {opts: []Option{Prefetch(3)}, lost: 2},
		"few bytes":           {opts: []Option{PrefetchBytes(100)}, lost: 1},
		"few pulls at a time": {cfg: jetstream.ConsumerConfig{MaxWaiting: 1}, lost: 1},
		"ack none":            {cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, before: func(*stage) { pass(time.Minute) }, lost: 1},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, tc.cfg, func(t *testing.T, s *stage) {
				var j journal
				r := s.consume(j.handler(0), tc.opts...)
				pass(time.Second)
				if tc.before != nil {
					tc.before(s)
				}
				from := time.Now()
				require.Equal(t, 1, s.openPulls())
				s.endShort(tc.lost)
				s.publish(1)
				pass(promiseHold + 10*time.Millisecond)
				require.Equal(t, upTo(1), j.all())
				s.publish(30)
				pass(time.Second)
				require.Equal(t, upTo(31), j.all())
				requireBounded(t, s, from, 40)
				pass(time.Minute)
				require.NoError(t, r.stop())
				require.Zero(t, s.sub.Stats().Outstanding)
			}, tc.opts...)
		})
	}
}

// What a status has promised counts against the window while it can be expected,
// and is taken for the two seconds after that too.
func TestAPromiseCountsAgainstTheWindowForAWhile(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	w.pass(shortBeat)
	w.pending(p, 408, "Request Timeout", 0)
	w.pass(promiseHold - 1)
	w.quiet()
	w.pass(1)
	again := w.pulled(pullStream)[0]
	require.Equal(t, 10, again.req.Batch)
	w.pass(shortBeat)
	w.status(again, 100, "Idle Heartbeat")
	require.Equal(t, w.deliver(p, 7), c.got)
	w.quiet()
	w.pass(shortBeat)
	w.status(again, 100, "Idle Heartbeat")
	w.pass(promiseGrace - promiseHold - 2*shortBeat - 1)
	require.Same(t, p.inbox.pull.inbox, p.inbox)
	require.Len(t, w.lane().pulls, 2)
	w.pass(1)
	require.Len(t, w.lane().pulls, 1)
	require.Empty(t, w.notices)
}
