package jetpull

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func milliseconds(ns ...int) (ds []time.Duration) {
	for _, n := range ns {
		ds = append(ds, time.Duration(n)*time.Millisecond)
	}
	return ds
}

func TestBackoff(t *testing.T) {
	w := newWorld(t, limits{})
	for _, jitter := range []float64{0, 0.25, 0.5, 0.999} {
		w.r.jitter = func() float64 { return jitter }
		for n, base := range milliseconds(250, 500, 800, 800, 800) {
			d := w.r.backoff(n)
			require.GreaterOrEqual(t, d, base-base/5)
			require.LessOrEqual(t, d, base+base/5)
		}
		require.Equal(t, w.r.backoff(4), w.r.backoff(1_000_000))
	}
	w.r.jitter = func() float64 { return 0 }
	low := w.r.backoff(0)
	w.r.jitter = func() float64 { return 1 }
	require.Greater(t, w.r.backoff(0), low, "retries are jittered")
}

func TestRetriesBackOff(t *testing.T) {
	for _, tt := range []struct {
		code int
		desc string
		is   error
	}{
		{503, "", ErrNoResponders},
		{409, "Leadership Change", ErrLeadershipChanged},
		{409, "Server Shutdown", ErrServerShutdown},
		{409, "Exceeded MaxWaiting", ErrMaxWaiting},
		{499, "New", ErrTimeout},
	} {
		t.Run(fmt.Sprint(tt.code, tt.desc), func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.post(1, 5*time.Second)
			for _, wait := range milliseconds(250, 500, 800, 800) {
				w.status(w.pulled(pullQuick)[0], tt.code, tt.desc)
				w.waits(c)
				w.pass(wait - 1)
				w.quiet()
				w.pass(1)
			}
			w.pulled(pullQuick)
			// What has come meanwhile shares the wait, and the next pull.
			w.status(w.sent[len(w.sent)-1], tt.code, tt.desc)
			d := w.post(1, 5*time.Second)
			w.quiet()
			w.pass(800 * time.Millisecond)
			p := w.pulled(pullQuick)[0]
			require.Equal(t, 2, p.req.Batch)
			w.deliver(p, 2)
			w.ended(c, 1, nil)
			w.ended(d, 1, nil)

			// After a success the first wait is short again.
			w.post(1, 5*time.Second)
			w.status(w.pulled(pullQuick)[0], tt.code, tt.desc)
			w.pass(250 * time.Millisecond)
			w.status(w.pulled(pullQuick)[0], tt.code, tt.desc)
			w.pass(10 * time.Second)
			last := w.posted[len(w.posted)-1]
			w.ended(last, 0, ErrTimeout)
			w.drained()
		})
	}
}

func TestNoStatusMakesPullsRunInCircles(t *testing.T) {
	for _, s := range statusTable {
		for _, mode := range []string{"once", "fill", "standing"} {
			t.Run(fmt.Sprint(s.code, s.desc, mode), func(t *testing.T) {
				w := newWorld(t, limits{pinned: true})
				w.post(1, 10*time.Second, func(c *claim) {
					switch mode {
					case "fill":
						fill(c)
					case "standing":
						standingOf(1)(c)
					}
				})
				for w.now < 10*time.Second {
					for _, p := range w.sent[w.seen:] {
						w.seen++
						w.status(p, s.code, s.desc)
					}
					w.pass(10 * time.Millisecond)
				}
				require.LessOrEqual(t, len(w.sent), 25, "pulls in 10 s")
			})
		}
	}
}

func TestATimeoutTellsWhatStoodInTheWay(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(1, 400*time.Millisecond)
	w.status(w.pulled(pullQuick)[0], 409, "Leadership Change")
	w.pass(time.Second)
	w.ended(c, 0, ErrTimeout)
	require.ErrorIs(t, c.err, ErrLeadershipChanged)
	status, ok := errors.AsType[*StatusError](c.err)
	require.True(t, ok)
	require.Equal(t, "Leadership Change", status.Description)
}

func TestNoRespondersLooksForTheConsumer(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(1, 5*time.Second)
	w.status(w.pulled(pullQuick)[0], 503, "")
	require.Equal(t, 1, w.checks)
	w.pass(250 * time.Millisecond)
	w.status(w.pulled(pullQuick)[0], 503, "")
	require.Equal(t, 1, w.checks, "one look at a time")
	w.r.gone(w.now, nil)
	w.did()
	w.waits(c)
	w.pass(500 * time.Millisecond)
	w.status(w.pulled(pullQuick)[0], 503, "")
	require.Equal(t, 2, w.checks)
	stand := w.post(0, 0, standingOf(5))
	w.r.gone(w.now, ErrConsumerDeleted)
	w.did()
	w.ended(c, 0, ErrConsumerDeleted)
	w.waits(stand)
	require.Equal(t, []string{"problem jetpull: consumer deleted"}, w.notices)
}

func TestReconnectEndsAllPulls(t *testing.T) {
	w := newWorld(t, limits{})
	some, none := w.newClaim(5, 10*time.Second), w.newClaim(1, 10*time.Second)
	w.postLong(some, none)
	long := w.pulled(pullOnce)[0]
	w.deliver(long, 2)
	quick := w.post(5, 10*time.Second)
	w.pulled(pullQuick)
	w.r.disconnected()
	w.did()
	w.ended(some, 2, nil)
	w.waits(quick)
	w.pass(time.Second)
	late := w.post(1, 10*time.Second)
	w.quiet()
	w.r.reconnected(w.now)
	w.did()
	require.Len(t, w.draining, 2, "the server may still serve a pull that it has not forgotten")
	for _, p := range w.pulled(pullQuick, pullOnce) {
		w.deliver(p, p.req.Batch)
	}
	w.ended(none, 1, nil)
	w.ended(quick, 5, nil)
	w.ended(late, 1, nil)
	w.atRest()
}

func TestReconnectRetriesInThePhaseItWasIn(t *testing.T) {
	w := newWorld(t, limits{})
	quick := w.post(1, 10*time.Second)
	w.pulled(pullQuick)
	w.r.disconnected()
	w.r.reconnected(w.now)
	w.did()
	w.waits(quick)
	w.empty(w.pulled(pullQuick)[0])
	w.pulled(pullOnce)
	w.r.disconnected()
	w.pass(4 * time.Second)
	w.quiet()
	w.r.reconnected(w.now)
	w.did()
	p := w.pulled(pullOnce)[0]
	require.Equal(t, 5900*time.Millisecond, p.req.Expires)
	w.pass(6 * time.Second)
	w.ended(quick, 0, ErrTimeout)
	require.ErrorIs(t, quick.err, errPullLost)
	w.atRest()
}

func TestDeadlinesHoldWhileDisconnected(t *testing.T) {
	w := newWorld(t, limits{})
	before := w.post(1, 5*time.Second)
	w.r.disconnected()
	after := w.post(1, 3*time.Second)
	w.pass(3 * time.Second)
	w.ended(after, 0, ErrTimeout)
	w.pass(2 * time.Second)
	w.ended(before, 0, ErrTimeout)
	w.r.reconnected(w.now)
	w.did()
	w.atRest()
}

func TestReconnectForgetsTheBackoff(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(1, 5*time.Second)
	w.status(w.pulled(pullQuick)[0], 503, "")
	w.r.disconnected()
	w.r.reconnected(w.now)
	w.did()
	w.pulled(pullQuick)
}

func TestAPullThatCannotBeSent(t *testing.T) {
	broken := errors.New("broken pipe")
	for _, kind := range []string{"quick", "long"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.post(1, 5*time.Second)
			p := w.pulled(pullQuick)[0]
			if kind == "long" {
				w.empty(p)
				p = w.pulled(pullOnce)[0]
			}
			w.r.sendFailed(w.now, p.inbox, broken)
			w.did()
			w.ended(c, 0, broken)
			w.r.sendFailed(w.now, p.inbox, broken) // of a pull that is over
			w.did()
			w.atRest()
		})
	}
}
