package jetpull

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// TestAWindowThatShrinksWhileIdleIsTold: what was handled and not told fills a smaller window.
func TestAWindowThatShrinksWhileIdleIsTold(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxAckPending: 1000}, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(j.handler(0))
		pass(time.Second)
		s.publish(3000)
		pass(time.Second)
		require.Equal(t, 3000, j.len())
		st := s.sub.engine.streams[0]
		freed := func() int { st.queue.mu.Lock(); defer st.queue.mu.Unlock(); return st.queue.freed }
		t.Log("window", st.windowSize(), "lot", st.queue.lot, "freed", freed())
		n := 3000
		for freed() < st.queue.lot/2+10 {
			s.publish(1)
			n++
			pass(time.Millisecond)
		}
		t.Log("window", st.windowSize(), "lot", st.queue.lot, "freed", freed())
		s.change(func(cfg *jetstream.ConsumerConfig) { cfg.MaxAckPending = 60 })
		s.sub.engine.strange() // as after a reconnect
		pass(time.Second)
		t.Log("window", st.windowSize(), "lot", st.queue.lot, "freed", freed(), "held", st.claim.stand.held)
		pass(10 * time.Minute)
		t.Log("pulls open", len(st.claim.lane.pulls))
		s.publish(5)
		pass(10 * time.Minute)
		t.Log("handled", j.len()-n, "of 5; pulls open", len(st.claim.lane.pulls), "running", r.running())
		require.Equal(t, n+5, j.len())
		require.NoError(t, r.stop())
	})
}

// TestMaxBytesOverMaxRequestMaxBytes: a message that fits MaxBytes and not what a pull may ask for ends the call.
func TestMaxBytesOverMaxRequestMaxBytes(t *testing.T) {
	for name, opts := range map[string][]Option{"adaptive": {MaxBytes(2000)}, "prefetch": {MaxBytes(2000), Prefetch(5)}} {
		t.Run(name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{MaxRequestMaxBytes: 1000}, func(t *testing.T, s *stage) {
				r := s.consume(func(context.Context, *Msg) error { return nil }, opts...)
				pass(time.Second)
				before := s.pullCount()
				limit := 5000
				s.publishToLimited(strings.Repeat("x", 1500), limit)
				pass(time.Second)
				t.Log("pulls in one second", s.pullCount()-before, "running", r.running())
				require.Less(t, s.pullCount()-before, 100)
			})
		})
	}
}

// after limit pulls the stage swallows them, so that virtual time can go on
func (s *stage) publishToLimited(body string, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	s.onPull = func(natstest.Pull) bool { n++; return n > limit }
	s.store("s.a", nil, body)
	s.serve()
}
