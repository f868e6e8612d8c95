package jetpull

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// silent lets n pulls of a new standing claim stay unanswered, and returns the
// probe that comes after them.
func (w *world) silent(n int) *pull {
	w.t.Helper()
	w.pass(2*shortBeat + expiresMargin)
	for i := range n - 1 {
		w.pass((probeExpires + probeExpires/2) << min(i, 3))
	}
	return w.probe(n)
}

// probe returns the probe that was sent after n pulls since pulled was called last,
// knocks aside.
func (w *world) probe(n int) *pull {
	w.t.Helper()
	pulls := slices.DeleteFunc(slices.Clone(w.sent[w.seen:]), func(p *pull) bool { return p.knock })
	w.seen = len(w.sent)
	require.Len(w.t, pulls, n+1)
	require.True(w.t, pulls[n].probes())
	return pulls[n]
}

// knocked passes the time until a knock goes out, and returns it.
func (w *world) knocked() *pull {
	w.t.Helper()
	w.pass(knockEvery)
	k := w.pulled(pullStream)[0]
	require.True(w.t, k.knock)
	require.Equal(w.t, 1, k.req.Batch)
	require.Equal(w.t, refreshBytes, k.req.MaxBytes)
	require.Zero(w.t, k.req.Heartbeat, "or a full queue would drop it without a word")
	return k
}

// Whatever the server has to say to a knock, the probe that it has not answered is
// lost, and is sent again at once.
func TestAKnockThatIsAnsweredEndsALostProbe(t *testing.T) {
	for _, tt := range []struct {
		code int
		desc string
		open time.Duration // how long the server lets the knock wait
		wait time.Duration // until the next pull may go out
	}{
		{409, "Message Size Exceeds MaxBytes", 0, 0},
		{408, "Request Timeout", probeExpires, 0},
		{409, "Exceeded MaxWaiting", 0, firstBackoff},
		{503, "", 0, firstBackoff},
	} {
		for n := 2; n < 7; n++ {
			t.Run(fmt.Sprintf("%d %s, %d unanswered", tt.code, tt.desc, n), func(t *testing.T) {
				w := newWorld(t, limits{})
				c := w.post(0, 0, standingOf(10))
				lost := w.silent(n)
				k := w.knocked()
				require.Same(t, lost.inbox.pull, w.lane().pulls[0])
				w.pass(tt.open)
				w.pending(k, tt.code, tt.desc, 1)
				w.pass(tt.wait)
				p := w.pulled(pullStream)[0]
				require.Equal(t, 10, p.req.Batch)
				require.Len(t, w.lane().pulls, 1)
				require.Equal(t, w.deliver(p, 3), c.got)
				late := w.arrive(lost.inbox, "")
				require.Contains(t, c.got, late, "what was on the wire all the same is not lost")
			})
		}
	}
}

// A server that is slow answers the probe, and the knocks are too late to count.
func TestKnocksLetAProbeHaveItsTime(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(0, 0, standingOf(10))
	p := w.silent(4)
	for range 3 {
		w.knocked()
	}
	w.pass(knockEvery - 1)
	require.Len(t, w.notices, 4, "of the probes, not of the knocks")
	require.Equal(t, w.deliver(p, 1), c.got)
	require.Equal(t, 1, w.calms)
	w.quiet()
}

// A knock that is open when the probe is answered after all says no more.
func TestAKnockAfterTheProbeWasAnswered(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	p := w.silent(3)
	k := w.knocked()
	w.pending(p, 408, "Request Timeout", 10)
	good := w.pulled(pullStream)[0]
	require.Equal(t, shortBeat, good.req.Heartbeat)
	require.Equal(t, 10, good.req.Batch, "a knock takes nothing of the window")
	require.Equal(t, 1, w.calms)
	problems := len(w.notices)
	w.pass(shortBeat)
	w.status(good, 100, "Idle Heartbeat")
	w.pass(knockEvery - shortBeat)
	require.Nil(t, k.inbox.pull, "it is waited for no longer")
	require.Len(t, w.notices, problems)
	w.status(good, 100, "Idle Heartbeat")
	w.quiet()
	w.pass(shortBeat)
	w.quiet()
}

// A pin is kept alive by knocks while a probe is open.
func TestKnocksRefreshAPin(t *testing.T) {
	w := newWorld(t, limits{pinned: true, pinTTL: 1500 * time.Millisecond})
	lane := w.r.laneOf(groupTerms{group: "g"}, 0, false)
	c := w.post(0, 0, standingOf(10), in(lane))
	w.arrive(w.pulled(pullStream)[0].inbox, "pin")
	w.pass(10 * time.Second)
	require.Greater(t, c.stand.doubt, 2)
	w.seen = len(w.sent)
	w.pass(6 * time.Second)
	pulls := w.sent[w.seen:]
	require.InDelta(t, 12, len(pulls), 2)
	for _, p := range pulls {
		require.Equal(t, "pin", p.req.ID)
	}
}

// TestConsumeIsBackWithinASecondOfALongSilence: the server takes pulls and answers
// none, for any time, and then answers those that come from then on.
func TestConsumeIsBackWithinASecondOfALongSilence(t *testing.T) {
	for silence := 500 * time.Millisecond; silence < 40*time.Second; silence += 770 * time.Millisecond {
		t.Run(silence.String(), func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				var j journal
				r := s.consume(j.handler(0))
				pass(time.Second)
				from := time.Now()
				s.do(func() { s.onPull = func(natstest.Pull) bool { return true } })
				s.forgetAll()
				pass(silence)
				requireBounded(t, s, from, 3)
				s.relent()
				s.publish(10)
				pass(time.Second)
				require.Equal(t, 10, j.len())
				require.NoError(t, r.stop())
				require.Zero(t, s.unsettled())
			})
		})
	}
}

// TestConsumeWithAServerThatIsSlowToAnswer: it takes pulls up late, and all of them
// in order. Knocks that go out meanwhile must not end the pull that it is to answer.
func TestConsumeWithAServerThatIsSlowToAnswer(t *testing.T) {
	for _, slow := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
		onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
			s.do(func() {
				s.onPull = func(p natstest.Pull) bool {
					time.AfterFunc(slow, func() { s.do(func() { s.take(p) }) })
					return true
				}
			})
			var j journal
			s.publish(100)
			from := time.Now()
			r := s.consume(j.handler(0), Prefetch(10))
			pass(5 * time.Minute)
			require.Equal(t, upTo(100), j.all(), "each once, after %v", slow)
			requireBounded(t, s, from, 5)
			require.NoError(t, r.stop())
		})
	}
}
