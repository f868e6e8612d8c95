package jetpull

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// After some statuses the inbox may be used again at once, after others data
// can still arrive on it.
func TestWhereAnInboxGoesAfterAStatus(t *testing.T) {
	for _, tt := range []struct {
		code    int
		desc    string
		pending bool
		drains  bool
	}{
		{404, "No Messages", false, false},
		{408, "Requests Pending", false, false},
		{408, "Request Timeout", true, false},
		{503, "", false, false},
		{423, "Nats-Pin-Id mismatch", false, false},
		{409, "Leadership Change", false, true},
		{409, "Server Shutdown", false, true},
		{409, "Server Shutdown", true, false},
		{409, "Consumer Deleted", false, true},
	} {
		t.Run(tt.desc, func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.post(3, time.Second)
			p := w.pulled(pullQuick)[0]
			if tt.pending {
				w.pending(p, tt.code, tt.desc, 3)
			} else {
				w.status(p, tt.code, tt.desc)
			}
			if !tt.drains {
				require.Empty(t, w.draining)
				return
			}
			require.Equal(t, []*inbox{p.inbox}, w.draining)
			require.Equal(t, allRoom-3, w.r.room, "room for what may still come")
			m := w.arrive(p.inbox, "")
			if c.done {
				require.Equal(t, []*Msg{m}, w.naks)
			} else {
				require.Equal(t, []*Msg{m}, c.got)
			}
			require.Equal(t, allRoom-2, w.r.room)
			w.drained()
			require.Equal(t, allRoom, w.r.room)
		})
	}
}

func TestExpiryOfAPull(t *testing.T) {
	for _, tt := range []struct{ left, want time.Duration }{
		{time.Hour, time.Hour - 100*time.Millisecond},
		{5 * time.Second, 4900 * time.Millisecond},
		{200 * time.Millisecond, 100 * time.Millisecond},
		{190 * time.Millisecond, 171 * time.Millisecond},
		{101 * time.Millisecond, 90900 * time.Microsecond},
		{2 * time.Millisecond, 1800 * time.Microsecond},
		{time.Millisecond, time.Millisecond},
		{1, time.Millisecond},
		{-time.Second, time.Millisecond},
	} {
		require.Equal(t, tt.want, expiresIn(tt.left), "%v left", tt.left)
	}
}

func TestAStandingClaimThatLeavesTakesItsPullsAlong(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	w.r.leave(w.now, c, context.Canceled)
	w.did()
	require.Equal(t, []*inbox{p.inbox}, w.draining)
	require.Empty(t, w.lane().pulls)
	m := w.arrive(p.inbox, "")
	require.Equal(t, []*Msg{m}, w.naks)
	w.atRest()
}

// What has arrived on an inbox is taken before the inbox is closed, so that it
// is handed over or back, and not met as a stranger later.
func TestADrainedInboxIsReadToItsEnd(t *testing.T) {
	w := newWorld(t, limits{})
	e := &engine{rules: w.r, sub: w.sub, inboxes: map[*nats.Subscription]*inbox{}, in: make(chan *nats.Msg, 10)}
	c := w.newClaim(2, time.Minute)
	w.postLong(c)
	ib := w.pulled(pullOnce)[0].inbox
	ib.sub = &nats.Subscription{}
	e.inboxes[ib.sub] = ib
	w.r.leave(w.now, c, context.Canceled)
	w.did()
	other := w.post(1, time.Minute)
	raw := w.message("late").raw
	raw.Sub = ib.sub
	e.in <- raw
	e.drained = []*inbox{ib}
	e.takeDrained()
	w.did()
	w.ended(other, 1, nil)
	require.Same(t, raw, other.got[0].raw)
	require.Empty(t, e.inboxes)
	require.Empty(t, e.drained)
}
