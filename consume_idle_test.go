package jetpull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// between is how many heartbeats the stage has sent between two times, and how
// many pulls it got.
func (s *stage) between(from, to time.Time) (heartbeats, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := func(times []time.Time) (n int) {
		for _, at := range times {
			if at.After(from) && !at.After(to) {
				n++
			}
		}
		return n
	}
	return count(s.beatsAt), count(s.pullsAt)
}

// openPulls is how many pulls wait at the stage.
func (s *stage) openPulls() (n int) {
	s.do(func() { n = len(s.pulls) })
	return n
}

// TestAnIdleConsumeSettlesOnOnePull: the pulls that overlapped while there was
// traffic soon run out, and only one is kept alive by heartbeats.
func TestAnIdleConsumeSettlesOnOnePull(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts []Option
	}{
		"by default":       {},
		"several handlers": {opts: []Option{Concurrency(8)}},
		"a fixed window":   {opts: []Option{Prefetch(64)}},
		"in bytes":         {opts: []Option{PrefetchBytes(10_000)}},
		"in small batches": {cfg: jetstream.ConsumerConfig{MaxRequestBatch: 10}},
		"one by one":       {cfg: jetstream.ConsumerConfig{MaxRequestBatch: 1}},
		"few at a time":    {cfg: jetstream.ConsumerConfig{MaxWaiting: 3}},
		"ack none":         {cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, tc.cfg, func(t *testing.T, s *stage) {
				var j journal
				r := s.consume(j.handler(0), tc.opts...)
				for range 50 {
					s.publish(7)
					pass(time.Millisecond)
				}
				s.publish(1000)
				for j.len() < 1350 {
					pass(time.Millisecond)
				}
				idle := time.Now()
				pass(2 * overlapExpires)
				require.Equal(t, 1, s.openPulls())
				pass(time.Minute)
				heartbeats, requests := s.between(idle.Add(2*overlapExpires), time.Now())
				require.LessOrEqual(t, heartbeats, int(time.Minute/shortBeat)+1)
				require.LessOrEqual(t, requests, 3)
				_, requests = s.between(idle, idle.Add(2*overlapExpires))
				require.LessOrEqual(t, requests, 10)
				s.forgetAll()
				s.publish(500)
				pass(time.Second + 10*time.Millisecond)
				require.Equal(t, 1850, j.len(), "a pull that the server has dropped is still missed within a second")
				require.NoError(t, r.stop())
			})
		})
	}
}

// TestATrickleTakesFewPulls: overlapping pulls that run out are not sent again
// for each message.
func TestATrickleTakesFewPulls(t *testing.T) {
	for _, every := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
		onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
			var j journal
			r := s.consume(j.handler(0))
			from := time.Now()
			n := int(10 * time.Minute / every)
			for range n {
				s.publish(1)
				pass(every)
			}
			require.Equal(t, n, j.len())
			heartbeats, requests := s.between(from, time.Now())
			require.LessOrEqual(t, requests, 35, "a message each %v", every)
			require.LessOrEqual(t, heartbeats, int(10*time.Minute/shortBeat)*11/10, "of little more than one pull at a time")
			require.NoError(t, r.stop())
		})
	}
}
