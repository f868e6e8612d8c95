package jetpull

import (
	"strings"
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
		s.do(func() { g.full, g.only = false, deadID(1) })
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

// TestWhatWaitsBehindAMessageAsideIsBoundedInBytes: they are few and large.
func TestWhatWaitsBehindAMessageAsideIsBoundedInBytes(t *testing.T) {
	const n, window, size = 400, 8, 64 << 10
	for name, tc := range map[string]struct {
		deliver int
		opts    []Option
		most    int // bytes that wait
		few     int // messages that wait at least
	}{
		"by default":             {1, []Option{Prefetch(window)}, asideBytes + window*(size+200), 100},
		"few bytes":              {1, []Option{PrefetchBytes(20 * size)}, 2 * 20 * size, 15},
		"that may go back":       {6, []Option{Prefetch(window)}, asideBytes + window*(size+200), 100},
		"few that may go back":   {6, []Option{PrefetchBytes(20 * size)}, 2 * 20 * size, 15},
		"less than one message":  {1, []Option{PrefetchBytes(100)}, 2 * (size + 200), 1},
		"an adaptive read-ahead": {1, nil, asideBytes + 64<<20, 100},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{MaxDeliver: tc.deliver, MaxAckPending: -1}, func(t *testing.T, s *stage) {
				g := newGraveyard(t, s)
				g.full = true
				s.publishTo("s.a", nil, "1")
				var j journal
				bad := failsFor(&j, "1")
				opts := append([]Option{OrderedBy((*Msg).Subject), MaxAttempts(tc.deliver), RetryDelays(0), DeadLetter("dead.letters")}, tc.opts...)
				r := s.consume(bad, opts...)
				pass(time.Minute)
				require.Equal(t, tc.deliver, j.len())
				body := strings.Repeat("x", size)
				for range n {
					s.publishTo("s.a", nil, body)
				}
				for range 60 {
					pass(time.Second)
					waiting := s.sub.Stats().Buffered
					require.LessOrEqual(t, waiting*size, tc.most)
					require.GreaterOrEqual(t, waiting, tc.few)
				}
				require.Equal(t, tc.deliver, j.len())
				s.do(func() { g.full = false })
				pass(10 * time.Minute)
				require.Equal(t, upTo(n + 1)[1:], j.all()[tc.deliver:], "all of them, in order")
				require.Equal(t, []string{"1"}, g.bodies())
				require.Zero(t, s.unsettled())
				require.NoError(t, r.stop())
			})
		})
	}
}

// What comes back takes the place of what comes after it only where it fits.
func TestWhatComesBackFitsBehindAMessageAside(t *testing.T) {
	sized := func(seq uint64, n int) *Msg {
		m := keyed(seq, "a")
		m.raw.Data = make([]byte, n)
		return m
	}
	base := sized(1, 0).size()
	d := byKey()
	d.grace, d.mostBytes = time.Hour, 3*base+300
	d.push(0, []*Msg{keyed(1, "a")})
	first := takeNow(t, d)
	d.hold(first, time.Hour, true)
	push := func(m *Msg) *Msg {
		t.Helper()
		rejected, freed, _ := d.push(0, []*Msg{m})
		require.Equal(t, 1, freed)
		if len(rejected) == 0 {
			return nil
		}
		return rejected[0].m
	}
	large, small := sized(2, 150), sized(3, 100)
	require.Nil(t, push(sized(4, 100)))
	require.Nil(t, push(sized(5, 100)))
	require.Nil(t, push(sized(6, 100)))
	last := sized(7, 100)
	require.Same(t, last, push(last))
	l := d.lines["a"]
	for _, m := range []*Msg{large, small} {
		l.away = append(l.away, away{m.Sequence(), 0})
	}
	require.Same(t, large, push(large), "it would be too much")
	require.Equal(t, uint64(6), push(small).Sequence())
	require.Equal(t, 3*base+300, d.backBytes)
	require.Equal(t, 3, d.back)
}
