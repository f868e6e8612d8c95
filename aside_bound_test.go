package jetpull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestWhatWaitsBehindAMessageAsideIsBounded: a dead letter that is never stored
// must not bring the rest of the stream into memory, also where no message may go
// back because it would not come again.
func TestWhatWaitsBehindAMessageAsideIsBounded(t *testing.T) {
	const n, window = maxBack + 1000, 8
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1, MaxAckPending: -1}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.full = true
		s.publish(n)
		var j journal
		r := s.consume(failsFor(&j, "1", "2"), OrderedBy((*Msg).Subject), Prefetch(window), MaxAttempts(1), DeadLetter("dead.letters"))
		pass(time.Hour)
		require.Equal(t, upTo(1), j.all())
		require.LessOrEqual(t, s.sub.Stats().Buffered, maxBack+window)
		s.do(func() { g.full, g.only = false, "S:C:1" })
		pass(time.Hour)
		require.Equal(t, upTo(2), j.all())
		require.LessOrEqual(t, s.sub.Stats().Buffered, maxBack+window)
		s.do(func() { g.only = "" })
		pass(buryLast + time.Second)
		require.Equal(t, upTo(n), j.all(), "all of them, in order")
		require.Equal(t, []string{"1", "2"}, g.bodies())
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
	})
}
