package jetpull

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// settled lets the caller of a standing claim be done with n messages of size
// bytes each, and take what was handed over.
func (w *world) settled(c *claim, n, size int) {
	w.t.Helper()
	c.stand.woken = false
	w.r.took(w.now, c, n, n*size)
	w.did()
}

func TestAStandingClaimKeepsItsWindowOnOrder(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	require.Equal(t, 10, p.req.Batch)
	require.Equal(t, 30*time.Second, p.req.Expires)
	require.Equal(t, shortBeat, p.req.Heartbeat)
	require.False(t, p.req.NoWait)
	w.deliver(p, 4)
	require.Len(t, c.got, 4)
	require.Equal(t, 1, w.wakes[c], "one wake for all that it has not taken yet")
	w.quiet()
	w.settled(c, 4, 0)
	w.quiet()
	w.deliver(p, 1)
	require.Equal(t, 2, w.wakes[c])
	w.settled(c, 1, 0)
	q := w.pulled(pullStream)[0]
	require.Equal(t, 5, q.req.Batch, "pulls overlap: half of the window is neither held nor on order")
	w.deliver(p, 5)
	w.deliver(q, 5)
	w.quiet()
	w.waits(c)
	w.r.leave(w.now, c, nil)
	w.did()
	w.atRest()
}

func TestAStandingClaimPullsAgainAfterEveryEnd(t *testing.T) {
	for _, tt := range []struct {
		code    int
		desc    string
		wait    time.Duration
		problem string
	}{
		{408, "Request Timeout", 250 * time.Millisecond, ""}, // long before its time
		{404, "No Messages", 250 * time.Millisecond, ""},
		{409, "Batch Completed", 250 * time.Millisecond, ""},
		{423, "Nats-Pin-Id mismatch", 250 * time.Millisecond, ""},
		{503, "", 250 * time.Millisecond, "503"},
		{409, "Leadership Change", 250 * time.Millisecond, "Leadership Change"},
		{409, "Server Shutdown", 250 * time.Millisecond, "Server Shutdown"},
		{409, "Exceeded MaxWaiting", 250 * time.Millisecond, "Exceeded MaxWaiting"},
		{409, "Consumer Deleted", 250 * time.Millisecond, "Consumer Deleted"},
	} {
		t.Run(tt.desc, func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.post(0, 0, standingOf(10))
			w.status(w.pulled(pullStream)[0], tt.code, tt.desc)
			w.waits(c)
			if tt.wait > 0 {
				w.quiet()
				w.pass(tt.wait)
			}
			if tt.desc == "Consumer Deleted" {
				w.quiet()
				require.Equal(t, 1, w.checks, "it may be another one that is there again")
				w.r.found(w.now, limits{}, w.r.needs)
				w.did()
			}
			again := w.pulled(pullStream)[0]
			require.Equal(t, tt.problem != "", again.probes(), "in doubt the server is to say what is wrong")
			w.pending(again, 408, "Request Timeout", 10)
			w.pass(lastBackoff)
			// Long after a backoff the reader does not spin.
			again = w.pulled(pullStream)[0]
			w.beats(again, 10)
			if tt.problem == "" {
				require.Empty(t, w.notices)
				return
			}
			require.Len(t, w.notices, 1)
			require.Contains(t, w.notices[0], tt.problem)
		})
	}
}

func TestAStandingClaimPullsAgainAtOnceAfterItsTime(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	for range 3 {
		p := w.pulled(pullStream)[0]
		w.beats(p, int(p.req.Expires/p.req.Heartbeat))
		w.quiet()
		w.pending(p, 408, "Request Timeout", 10)
	}
	require.Len(t, w.pulled(pullStream), 1)
	require.Empty(t, w.notices)
}

func TestAStandingClaimEnds(t *testing.T) {
	for _, tt := range []struct {
		code int
		desc string
		want error
	}{
		{400, "Bad Request", ErrBadRequest},
		{409, "Exceeded MaxRequestBatch of 1", ErrLimitExceeded},
		{409, "Consumer is push based", ErrNotPull},
		{412, "Required Api Level", ErrBadRequest},
	} {
		t.Run(tt.desc, func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.post(0, 0, standingOf(10))
			w.status(w.pulled(pullStream)[0], tt.code, tt.desc)
			if errors.Is(tt.want, ErrLimitExceeded) {
				w.waits(c)
				w.quiet()
				require.Equal(t, 1, w.checks, "the limit may be new")
				w.r.found(w.now, limits{}, w.r.needs)
				w.did()
			}
			require.True(t, c.done)
			require.ErrorIs(t, c.err, tt.want)
			w.atRest()
		})
	}
	t.Run("unsendable", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(0, 0, standingOf(10))
		broken := errors.New("broken")
		w.r.sendFailed(w.now, w.pulled(pullStream)[0].inbox, broken)
		w.did()
		require.ErrorIs(t, c.err, broken)
		w.atRest()
	})
}

// beats lets n heartbeats of p pass in its rhythm.
func (w *world) beats(p *pull, n int) {
	w.t.Helper()
	for range n {
		w.pass(p.req.Heartbeat)
		w.status(p, 100, "Idle Heartbeat")
	}
	w.quiet()
}

// A pull that the server drops is missed within a second, and the next one asks
// for no heartbeats, because the server tells such a pull what it has against it.
func TestAStandingClaimNoticesSilence(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	w.pulled(pullStream)
	w.pass(2*shortBeat + expiresMargin - 1)
	w.quiet()
	w.pass(1)
	p := w.pulled(pullStream)[0]
	require.Equal(t, probeExpires, p.req.Expires)
	require.Zero(t, p.req.Heartbeat)
	require.Equal(t, []string{"problem " + errSilent.Error()}, w.notices)
	w.status(p, 409, "Exceeded MaxWaiting")
	w.pass(lastBackoff)
	p = w.pulled(pullStream)[0]
	require.Equal(t, probeExpires, p.req.Expires)
	w.pending(p, 408, "Request Timeout", 10)
	p = w.pulled(pullStream)[0]
	require.Equal(t, streamExpires, p.req.Expires, "the server deals with pulls again")
	require.Equal(t, shortBeat, p.req.Heartbeat)
}

// A server that is too busy for heartbeats is asked for fewer and fewer, one
// that stays silent is given more and more time.
func TestAStandingClaimIsPatientWithABusyServer(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	for _, beat := range []time.Duration{shortBeat, 2 * shortBeat, 4 * shortBeat, 8 * shortBeat, defaultHeartbeat, defaultHeartbeat} {
		p := w.pulled(pullStream)[0]
		require.Equal(t, beat, p.req.Heartbeat)
		w.pass(2*beat + expiresMargin)
		p = w.pulled(pullStream)[0]
		w.pass(p.req.Expires + expiresMargin + 1)
		w.pending(p, 408, "Request Timeout", 10)
	}
	w.pulled(pullStream)
	w.pass(2*defaultHeartbeat + expiresMargin)
	for _, times := range []int{1, 2, 4, 8, 8, 8} {
		p := w.probe(0)
		require.Equal(t, probeExpires, p.req.Expires)
		w.pass(time.Duration(times)*(probeExpires+probeExpires/2) - 1)
		require.Contains(t, w.lane().pulls, p.inbox.pull)
		require.Equal(t, p.token, p.inbox.pull.token)
		w.pass(1)
	}
}

// A server that answers the probe in time was not busy: it did drop the pull, and
// the next one that it drops is missed as soon.
func TestAStandingClaimMissesEachPullAsSoon(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	for range 5 {
		require.Equal(t, shortBeat, w.pulled(pullStream)[0].req.Heartbeat)
		w.pass(2*shortBeat + expiresMargin)
		p := w.pulled(pullStream)[0]
		w.pass(p.req.Expires)
		w.pending(p, 408, "Request Timeout", 10)
	}
}

// So it is over a long link, where every answer takes its time.
func TestAStandingClaimFarAwayMissesEachPullAsSoon(t *testing.T) {
	const link = 250 * time.Millisecond
	w := newWorld(t, limits{})
	w.deaf = true
	w.post(0, 0, standingOf(10))
	for range 5 {
		p := w.pulled(pullStream)[0]
		require.Equal(t, shortBeat, p.req.Heartbeat)
		w.pass(2*shortBeat + expiresMargin + link)
		w.pong(true)
		p = w.pulled(pullStream)[0]
		w.pass(p.req.Expires + link)
		w.pending(p, 408, "Request Timeout", 10)
	}
	p := w.pulled(pullStream)[0]
	w.pass(2*p.req.Heartbeat + expiresMargin + link)
	w.pong(true)
	p = w.pulled(pullStream)[0]
	w.pass(p.req.Expires + link + expiresMargin + 1)
	w.pending(p, 408, "Request Timeout", 10)
	require.Equal(t, 2*shortBeat, w.pulled(pullStream)[0].req.Heartbeat, "this one was late even so")
}

// Without messages for hours, a pull that the server drops is missed as soon.
func TestAStandingClaimThatIsIdleMissesAPullAsSoon(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	for w.now <= 2*time.Hour {
		w.beats(p, int(p.req.Expires/p.req.Heartbeat))
		w.pending(p, 408, "Request Timeout", 10)
		p = w.pulled(pullStream)[0]
		require.Equal(t, shortBeat, p.req.Heartbeat)
	}
	w.pass(2*shortBeat + expiresMargin)
	w.pulled(pullStream)
}

// On a connection that carries nothing a pull is not given up: another would be
// as late, and what comes for this one when it is back would be lost.
func TestAStandingClaimWaitsForASilentConnection(t *testing.T) {
	w := newWorld(t, limits{})
	w.deaf = true
	c := w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	w.pass(2*shortBeat + expiresMargin)
	require.Equal(t, 1, w.pings)
	require.Empty(t, w.notices, "a slow link is no problem yet")
	w.pass(pingPatience)
	require.Equal(t, []string{"problem " + errSilent.Error()}, w.notices)
	for range 10 {
		w.pass(pingWait)
		w.pong(false)
	}
	require.Equal(t, 11, w.pings)
	require.Len(t, w.notices, 1)
	w.quiet()
	require.Equal(t, w.deliver(p, 1), c.got)
	w.pong(true)
	w.quiet()
	w.pass(2*shortBeat + expiresMargin)
	require.Equal(t, 12, w.pings, "and now it is missed again")
	w.pong(true)
	w.pulled(pullStream)
}

// A pull that becomes overdue after the ping was sent is not judged by it.
func TestAPingSaysNothingOfLaterPulls(t *testing.T) {
	w := newWorld(t, limits{})
	w.deaf = true
	w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	w.pass(500 * time.Millisecond)
	w.post(0, 0, standingOf(10))
	w.pulled(pullStream)
	w.pass(500 * time.Millisecond)
	require.Equal(t, 1, w.pings)
	w.pass(500 * time.Millisecond)
	w.pong(true)
	require.NotContains(t, w.lane().pulls, p)
	require.Equal(t, 2, w.pings)
	w.pulled(pullStream)
	w.pong(true)
	w.pulled(pullStream)
}

func TestAStandingClaimSurvivesAReconnect(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	w.r.disconnected()
	w.did()
	w.pass(time.Minute)
	w.quiet()
	w.r.reconnected(w.now)
	w.did()
	w.pulled(pullStream)
	late := w.arrive(p.inbox, "")
	require.Equal(t, []*Msg{late}, c.got, "what was on the wire is not lost")
}

func TestAByteWindow(t *testing.T) {
	w := newWorld(t, limits{})
	size := w.message("body").raw.Size()
	c := w.post(0, 0, standingOf(100), func(c *claim) { c.stand.byteWindow = 4 * size })
	p := w.pulled(pullStream)[0]
	require.Equal(t, 4*size, p.req.MaxBytes)
	w.deliver(p, 4)
	w.quiet()
	w.settled(c, 1, size)
	q := w.pulled(pullStream)[0]
	require.Equal(t, size, q.req.MaxBytes, "as much as was settled is asked for, no more")
	w.settled(c, 2, size)
	w.quiet() // until the small pull is over
	w.deliver(q, 1)
	require.Equal(t, 2*size, w.pulled(pullStream)[0].req.MaxBytes)
}

func TestAMessageLargerThanTheByteWindowComesAlone(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(0, 0, standingOf(100), func(c *claim) { c.stand.byteWindow = 10 })
	p := w.pulled(pullStream)[0]
	w.pending(p, 409, "Message Size Exceeds MaxBytes", 100)
	q := w.pulled(pullStream)[0]
	require.Equal(t, 1, q.req.Batch)
	require.Zero(t, q.req.MaxBytes)
	m := w.deliver(q, 1)
	require.Equal(t, m, c.got)
	w.quiet()
	w.settled(c, 1, m[0].raw.Size())
	require.Equal(t, 10, w.pulled(pullStream)[0].req.MaxBytes)
}

// The last byte of a window is a pull as any other, and not taken for one that
// refreshes a pin and may be sent again when it is refused.
func TestAByteWindowWithOneByteLeft(t *testing.T) {
	w := newWorld(t, limits{})
	size := w.message("body").raw.Size()
	c := w.post(0, 0, standingOf(100), func(c *claim) { c.stand.byteWindow = size + 1 })
	p := w.pulled(pullStream)[0]
	w.deliver(p, 1)
	w.pending(p, 409, "Message Size Exceeds MaxBytes", 99)
	p = w.pulled(pullStream)[0]
	require.Equal(t, 1, p.req.MaxBytes)
	w.pending(p, 409, "Message Size Exceeds MaxBytes", 99)
	w.quiet()
	w.pass(time.Minute)
	w.quiet()
	w.settled(c, 1, size)
	q := w.pulled(pullStream)[0]
	require.Zero(t, q.req.MaxBytes)
	require.Equal(t, 1, q.req.Batch)
}

func TestAStandingClaimWithMaxBytes(t *testing.T) {
	w := newWorld(t, limits{})
	lane := w.lane()
	c := w.post(0, 0, standingOf(100), maxBytes(50), in(lane))
	p := w.pulled(pullStream)[0]
	require.Equal(t, 50, p.req.MaxBytes)
	w.pending(p, 409, "Message Size Exceeds MaxBytes", 100)
	require.True(t, c.done, "pulling again for a message that never fits would go on for ever")
	require.ErrorIs(t, c.err, ErrMaxBytes)
	w.atRest()
}

func TestStandingAndWaitingClaimsShareALane(t *testing.T) {
	w := newWorld(t, limits{})
	stand := w.post(0, 0, standingOf(5))
	p := w.pulled(pullStream)[0]
	next := w.post(1, 5*time.Second)
	q := w.pulled(pullQuick)[0]
	w.deliver(p, 1)
	w.ended(next, 1, nil)
	require.Empty(t, stand.got, "who waits goes first")
	w.deliver(p, 1)
	require.Len(t, stand.got, 1)
	w.deliver(q, 1)
	require.Len(t, stand.got, 2, "late for the other, and welcome here")
	require.Empty(t, w.naks)
}

func TestTwoStandingClaimsGetWhatTheyAskedFor(t *testing.T) {
	w := newWorld(t, limits{})
	a, b := w.post(0, 0, standingOf(5)), w.post(0, 0, standingOf(5))
	pulls := w.pulled(pullStream, pullStream)
	w.deliver(pulls[1], 3)
	require.Len(t, b.got, 3)
	w.deliver(pulls[0], 2)
	require.Len(t, a.got, 2)
	w.r.leave(w.now, b, nil)
	w.did()
	w.arrive(pulls[1].inbox, "")
	require.Len(t, a.got, 3, "what comes for one that left goes to the other")
}

func TestAStandingClaimUnderTheConsumersLimits(t *testing.T) {
	w := newWorld(t, limits{batch: 4, expires: time.Second, bytes: 100})
	w.post(0, 0, standingOf(10), func(c *claim) { c.stand.byteWindow = 1000 })
	p := w.pulled(pullStream)[0]
	require.Equal(t, 4, p.req.Batch)
	require.Equal(t, time.Second, p.req.Expires)
	require.LessOrEqual(t, 2*p.req.Heartbeat, p.req.Expires)
	require.Equal(t, 100, p.req.MaxBytes)
}

func TestAPinIsRefreshedByPulls(t *testing.T) {
	w := newWorld(t, limits{pinned: true, pinTTL: 6 * time.Second})
	lane := w.r.laneOf(groupTerms{group: "g"}, 0, false)
	c := w.post(0, 0, standingOf(1), in(lane))
	p := w.pulled(pullStream)[0]
	require.Equal(t, 2*time.Second, p.req.Expires, "well under the time after which the server forgets the pin")
	w.arrive(p.inbox, "pin")
	w.quiet()
	// The worker is at it for long, and its window is full.
	for range 3 {
		w.pass(1800 * time.Millisecond)
		w.quiet()
		w.pass(200 * time.Millisecond)
		q := w.pulled(pullStream)[0]
		require.Equal(t, "pin", q.req.ID)
		require.Equal(t, 1, q.req.Batch)
		w.pending(q, 408, "Request Timeout", 1)
	}
	// While disconnected, or with an oversized message to come, it waits and
	// the reader does not spin.
	w.r.disconnected()
	w.pass(time.Minute)
	w.quiet()
	c.stand.oversize = true
	w.r.reconnected(w.now)
	w.did()
	w.pass(time.Minute)
	w.quiet()
}

// With a byte window that is full, a pin is refreshed by a pull that brings nothing.
func TestAPinIsRefreshedWithinTheByteWindow(t *testing.T) {
	w := newWorld(t, limits{pinned: true, pinTTL: 6 * time.Second})
	lane := w.r.laneOf(groupTerms{group: "g"}, 0, false)
	c := w.post(0, 0, standingOf(100), in(lane), func(c *claim) { c.stand.byteWindow = 1000 })
	p := w.pulled(pullStream)[0]
	m := w.arrive(p.inbox, "pin")
	w.settled(c, 0, 0)
	c.stand.heldBytes = 5000
	w.pending(p, 408, "Request Timeout", 99)
	for range 3 {
		w.pass(2 * time.Second)
		p = w.pulled(pullStream)[0]
		require.Equal(t, refreshBytes, p.req.MaxBytes)
		w.pending(p, 409, "Message Size Exceeds MaxBytes", int64(p.req.Batch))
		w.quiet()
	}
	w.r.took(w.now, c, 0, 4400)
	w.did()
	require.Equal(t, 400, w.pulled(pullStream)[0].req.MaxBytes)
	require.Equal(t, []*Msg{m}, c.got)
}

func TestAStandingClaimUnderMaxWaiting(t *testing.T) {
	for waiting, pulls := range map[int]int{1: 1, 2: 2, 8: 2, 40: 10, 0: maxPrefetch} {
		require.Equal(t, pulls, newRules("", "", limits{waiting: waiting}, nil).pullsAtOnce(), "MaxWaiting %d", waiting)
	}
}

func TestAStandingClaimGetsRoomWhenThereIsSome(t *testing.T) {
	w := newWorld(t, limits{})
	big := w.post(allRoom, time.Minute)
	p := w.pulled(pullQuick)[0]
	require.Zero(t, w.r.room)
	stand := w.post(0, 0, standingOf(10))
	w.quiet()
	w.deliver(p, 1)
	require.Positive(t, w.pulled(pullStream)[0].req.Batch)
	w.waits(big)
	w.waits(stand)
}
