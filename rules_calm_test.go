package jetpull

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Calm is told once, as soon as anything says that the server deals with a
// standing claim's pulls again.
func TestCalmIsToldOnceAfterProblems(t *testing.T) {
	for _, tt := range []struct {
		name  string
		again func(*world, *pull)
	}{
		{"the probe runs out", func(w *world, p *pull) { w.pending(p, 408, "Request Timeout", 10) }},
		{"a heartbeat", func(w *world, p *pull) { w.status(p, 100, "Idle Heartbeat") }},
		{"a message", func(w *world, p *pull) { w.deliver(p, 1) }},
		{"a message for another claim", func(w *world, p *pull) {
			w.post(1, 5*time.Second)
			w.deliver(p, 1)
		}},
		{"a message that is too large", func(w *world, p *pull) { w.pending(p, 409, "Message Size Exceeds MaxBytes", 10) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, limits{})
			w.post(0, 0, standingOf(10), func(c *claim) { c.stand.byteWindow = 1 << 20 })
			w.status(w.pulled(pullStream)[0], 409, "Leadership Change")
			require.Len(t, w.notices, 1)
			w.pass(firstBackoff)
			p := w.pulled(pullStream)[0]
			require.Zero(t, w.calms)
			tt.again(w, p)
			require.Equal(t, 1, w.calms)
		})
	}
}

// The news that the consumer is gone comes from another call's pull: the claim
// has to hear of its own.
func TestCalmAfterAConsumerThatSeemedGone(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	w.r.gone(w.now, ErrConsumerDeleted)
	w.did()
	require.Len(t, w.notices, 1)
	require.Zero(t, w.calms)
	w.beats(p, 2)
	require.Equal(t, 1, w.calms)
}

func TestNoCalmWithoutProblems(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	w.deliver(p, 5)
	w.beats(p, 3)
	w.pending(p, 408, "Request Timeout", 5)
	require.Zero(t, w.calms)
}
