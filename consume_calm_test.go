package jetpull

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestTheEndOfADisturbanceIsLoggedAtOnce: no message arrives, and it does not
// matter what else the call has to look after.
func TestTheEndOfADisturbanceIsLoggedAtOnce(t *testing.T) {
	consumers := map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts []Option
	}{
		"with ack":         {},
		"ack none":         {cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}},
		"KeepAlive off":    {opts: []Option{KeepAlive(false)}},
		"a long AckWait":   {cfg: jetstream.ConsumerConfig{AckWait: time.Hour}},
		"ordered by key":   {opts: []Option{OrderedBy((*Msg).Subject), Concurrency(4)}},
		"many workers":     {opts: []Option{KeepAlive(false), Concurrency(4)}},
		"ack all":          {cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}},
		"a slow heartbeat": {opts: []Option{Heartbeat(10 * time.Second), KeepAlive(false)}},
	}
	disturbances := map[string]struct {
		begin, end func(*stage)
	}{
		"no responders": {func(s *stage) { s.answer(503, ""); s.endAll(503, "") }, (*stage).relent},
		"a new leader": {func(s *stage) {
			s.answer(409, "Leadership Change")
			s.endAll(409, "Leadership Change")
		}, (*stage).relent},
		"missed heartbeats": {func(s *stage) { s.peer.Pause(true) }, func(s *stage) { s.peer.Pause(false) }},
		"a cut": {func(s *stage) {
			s.peer.Refuse(true)
			s.peer.Cut()
			s.forgetAll()
		}, func(s *stage) { s.peer.Refuse(false) }},
	}
	for consumer, c := range consumers {
		for disturbance, d := range disturbances {
			t.Run(fmt.Sprintf("%s, %s", consumer, disturbance), func(t *testing.T) {
				onStage(t, c.cfg, func(t *testing.T, s *stage) {
					r := s.consume(func(context.Context, *Msg) error { return nil }, c.opts...)
					for round := range 3 {
						pass(5 * time.Second)
						d.begin(s)
						pass(time.Minute)
						require.Len(t, s.logs.with("is disturbed"), round+1, "%v", s.logs.with("jetpull"))
						require.Len(t, s.logs.with("no longer disturbed"), round)
						d.end(s)
						back := time.Now()
						for len(s.logs.with("no longer disturbed")) == round {
							pass(10 * time.Millisecond)
							require.LessOrEqual(t, time.Since(back), lastBackoff*6/5+probeExpires+100*time.Millisecond,
								"the next pull, a probe and its answer")
						}
					}
					s.publish(1)
					pass(time.Minute)
					require.Len(t, s.logs.with("is disturbed"), 3)
					require.Len(t, s.logs.with("no longer disturbed"), 3)
					require.Empty(t, s.logs.with("arrive again"), "the end of it has been told")
					require.NoError(t, r.stop())
				})
			})
		}
	}
}

// TestAMessageForAnotherCallerEndsADisturbance: a call of Next takes the message
// that says that all is well.
func TestAMessageForAnotherCallerEndsADisturbance(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		r := s.consume(func(context.Context, *Msg) error { return nil })
		pass(time.Second)
		s.endAll(409, "Leadership Change")
		pass(500 * time.Millisecond) // the probe is open
		require.Len(t, s.logs.with("is disturbed"), 1)
		require.Empty(t, s.logs.with("no longer disturbed"))
		got := make(chan error, 1)
		go func() {
			_, err := s.sub.Next(t.Context(), MaxWait(5*time.Second))
			got <- err
		}()
		pass(time.Millisecond)
		s.publish(1)
		require.NoError(t, <-got)
		pass(time.Millisecond)
		require.Len(t, s.logs.with("no longer disturbed"), 1)
		require.NoError(t, r.stop())
	})
}

// TestAMessageEndsADisturbanceInOneLine: the line says that messages arrive.
func TestAMessageEndsADisturbanceInOneLine(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(j.handler(0))
		pass(time.Second)
		s.endAll(409, "Leadership Change")
		s.publish(1)
		pass(time.Minute)
		require.Equal(t, 1, j.len())
		require.Len(t, s.logs.with("is disturbed"), 1)
		require.Len(t, s.logs.with("arrive again"), 1)
		require.Empty(t, s.logs.with("no longer disturbed"))
		require.NoError(t, r.stop())
	})
}
