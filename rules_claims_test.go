package jetpull

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNextFindsWhatIsThere(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(1, 5*time.Second)
	p := w.pulled(pullQuick)[0]
	require.JSONEq(t, `{"batch":1,"no_wait":true}`, string(p.req.Append(nil)))
	m := w.deliver(p, 1)
	w.ended(c, 1, nil)
	require.Same(t, m[0], c.got[0])
	w.quiet()
	w.atRest()
	require.Len(t, w.r.idle, 1, "the inbox is kept")

	// The next call uses the same inbox, with a token of its own.
	d := w.post(1, 5*time.Second)
	q := w.pulled(pullQuick)[0]
	require.Same(t, p.inbox, q.inbox)
	require.NotEqual(t, p.token, q.token)
	require.Len(t, w.subbed, 1)
	w.deliver(q, 1)
	w.ended(d, 1, nil)
	w.atRest()
	require.Empty(t, w.dropped)
	require.Empty(t, w.draining)
}

func TestLongPullFollowsAnEmptyQuickOne(t *testing.T) {
	for _, end := range []struct {
		code int
		desc string
	}{{404, "No Messages"}, {408, "Requests Pending"}, {408, "Request Timeout"}} {
		t.Run(end.desc, func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.post(1, 5*time.Second)
			quick := w.pulled(pullQuick)[0]
			w.pass(10 * time.Millisecond)
			w.status(quick, end.code, end.desc)
			w.waits(c)
			p := w.pulled(pullOnce)[0]
			require.Equal(t, 4890*time.Millisecond, p.req.Expires, "time left less 100 ms")
			require.Zero(t, p.req.Heartbeat)
			require.True(t, p.req.NoWait)
			require.True(t, p.inbox.single, "an inbox of its own")
			w.pass(4 * time.Second)
			w.deliver(p, 1)
			w.ended(c, 1, nil)
			require.Equal(t, []*inbox{p.inbox}, w.dropped)
			w.atRest()
		})
	}
}

func TestQuickStatusesOfAClaim(t *testing.T) {
	for _, tt := range []struct {
		name string
		code int
		desc string
		mode func(*claim)
		got  int
		want error // nil with got 0: the claim still waits
	}{
		{"empty with NoWait", 404, "No Messages", noWait, 0, ErrNoMessages},
		{"others' requests pending with NoWait", 408, "Requests Pending", noWait, 0, ErrNoMessages},
		{"part of it", 404, "No Messages", nil, 2, nil},
		{"part of it with NoWait", 404, "No Messages", noWait, 2, nil},
		{"part of it on R3", 408, "Request Timeout", nil, 2, nil},
		{"part of a batch to fill", 404, "No Messages", fill, 2, nil},
		{"bad request", 400, "Bad Request - x", nil, 0, ErrBadRequest},
		{"over the limit", 409, "Exceeded MaxRequestBatch of 1", nil, 0, ErrLimitExceeded},
		{"deleted", 409, "Consumer Deleted", nil, 0, ErrConsumerDeleted},
		{"deleted after a part", 409, "Consumer Deleted", nil, 2, nil},
		{"push", 409, "Consumer is push based", nil, 0, ErrNotPull},
		{"api level", 412, "Required Api Level", nil, 0, ErrBadRequest},
		{"too large", 409, "Message Size Exceeds MaxBytes", nil, 0, ErrMaxBytes},
		{"too large after a part", 409, "Message Size Exceeds MaxBytes", nil, 2, nil},
		{"no responders after a part", 503, "", nil, 2, nil},
		{"no responders", 503, "", nil, 0, nil},
		{"leadership", 409, "Leadership Change", nil, 0, nil},
		{"shutdown", 409, "Server Shutdown", nil, 0, nil},
		{"max waiting", 409, "Exceeded MaxWaiting", nil, 0, nil},
		{"pin", 423, "Nats-Pin-Id mismatch", nil, 0, nil},
		{"heartbeat", 100, "Idle Heartbeat", nil, 0, nil},
		{"unknown", 499, "Something New", nil, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.newClaim(5, 5*time.Second)
			if tt.mode != nil {
				tt.mode(c)
			}
			w.posted = append(w.posted, c)
			w.r.post(w.now, c)
			w.did()
			p := w.pulled(pullQuick)[0]
			w.deliver(p, tt.got)
			w.status(p, tt.code, tt.desc)
			switch {
			case c.mode == claimFill || tt.got == 0 && tt.want == nil:
				w.waits(c)
				require.Len(t, c.got, tt.got)
			default:
				w.ended(c, tt.got, tt.want)
				w.atRest()
			}
		})
	}
}

func TestAStatusErrorTellsWhatTheServerSaid(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(5, time.Second)
	w.status(w.pulled(pullQuick)[0], 409, "Exceeded MaxRequestBatch of 4")
	status, ok := errors.AsType[*StatusError](c.err)
	require.True(t, ok)
	require.Equal(t, 409, status.Code)
	require.Equal(t, "Exceeded MaxRequestBatch of 4", status.Description)
	require.Equal(t, "api.next", status.Subject)
}

func TestFetchTakesWhatTheLongPullBrings(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(10, 5*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	p := w.pulled(pullOnce)[0]
	require.Equal(t, 10, p.req.Batch)
	w.pass(time.Second)
	w.deliver(p, 3)
	w.waits(c)
	w.empty(p)
	w.ended(c, 3, nil)
	w.atRest()
}

func TestFetchEndsWithAFullLongPull(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(3, 5*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	w.deliver(w.pulled(pullOnce)[0], 3)
	w.ended(c, 3, nil)
	w.atRest()
}

func TestFillBatchWaitsForAll(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(5, 5*time.Second, fill)
	quick := w.pulled(pullQuick)[0]
	w.deliver(quick, 2)
	w.empty(quick)
	p := w.pulled(pullPlain)[0]
	require.Equal(t, 3, p.req.Batch)
	require.False(t, p.req.NoWait)
	w.deliver(p, 2)
	w.waits(c)
	w.pass(time.Second)
	w.deliver(p, 1)
	w.ended(c, 5, nil)
	w.atRest()
}

func TestFillBatchEndsAtItsDeadline(t *testing.T) {
	w := newWorld(t, limits{})
	some, none := w.newClaim(5, 5*time.Second, fill), w.newClaim(5, 6*time.Second, fill)
	w.postLong(some, none)
	p := w.pulled(pullPlain)[0]
	require.Equal(t, 10, p.req.Batch)
	w.deliver(p, 2)
	w.pass(5 * time.Second)
	w.ended(some, 2, nil)
	w.pass(5 * time.Second)
	w.ended(none, 0, ErrTimeout)
	w.atRest()
}

func TestTimeoutAtTheServersWordOrTheDeadline(t *testing.T) {
	t.Run("expired", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(1, 5*time.Second)
		w.empty(w.pulled(pullQuick)[0])
		p := w.pulled(pullOnce)[0]
		w.pass(p.req.Expires)
		w.pending(p, 408, "Request Timeout", 1)
		w.ended(c, 0, ErrTimeout)
		w.atRest()
	})
	t.Run("expired too early", func(t *testing.T) {
		w := newWorld(t, limits{expires: time.Second})
		c := w.post(1, 2500*time.Millisecond)
		w.empty(w.pulled(pullQuick)[0])
		for _, left := range []time.Duration{time.Second, time.Second, 400 * time.Millisecond} {
			p := w.pulled(pullOnce)[0]
			require.Equal(t, left, p.req.Expires, "no pull asks for more than the consumer allows")
			w.waits(c)
			w.pass(p.req.Expires)
			w.pending(p, 408, "Request Timeout", 1)
		}
		w.ended(c, 0, ErrTimeout)
		w.atRest()
	})
	t.Run("silence", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(1, 5*time.Second)
		w.empty(w.pulled(pullQuick)[0])
		w.pulled(pullOnce)
		w.pass(5*time.Second - 1)
		w.waits(c)
		w.pass(1)
		w.ended(c, 0, ErrTimeout)
		w.atRest()
	})
	t.Run("asked beyond the limit", func(t *testing.T) {
		w := newWorld(t, limits{expires: time.Second})
		c := w.post(1, 5*time.Second, func(c *claim) { c.asked = true })
		w.empty(w.pulled(pullQuick)[0])
		p := w.pulled(pullOnce)[0]
		require.Equal(t, 4900*time.Millisecond, p.req.Expires, "the user asked for it, so the server is to refuse it")
		w.status(p, 409, "Exceeded MaxRequestExpires of 1s")
		w.ended(c, 0, ErrLimitExceeded)
		w.atRest()
	})
}

func TestAClaimOverTheLimitDoesNotFailOthers(t *testing.T) {
	w := newWorld(t, limits{expires: time.Second})
	first, other := w.newClaim(1, 5*time.Second), w.newClaim(1, 5*time.Second)
	over := w.newClaim(1, 5*time.Second, func(c *claim) { c.asked = true })
	w.postLong(first, over, other)
	long := w.pulled(pullOnce, pullOnce)
	require.Equal(t, time.Second, long[0].req.Expires)
	require.Equal(t, 2, long[0].req.Batch)
	require.Equal(t, 4900*time.Millisecond, long[1].req.Expires)
	w.status(long[1], 409, "Exceeded MaxRequestExpires of 1s")
	w.ended(over, 0, ErrLimitExceeded)
	w.waits(first)
	w.waits(other)
}

func TestHeartbeatsOfALongPull(t *testing.T) {
	for _, tt := range []struct {
		name              string
		asked, wait, want time.Duration
	}{
		{"short", 0, 5 * time.Second, 0},
		{"just under", 0, 9900 * time.Millisecond, 0},
		{"long", 0, 10 * time.Second, 4950 * time.Millisecond},
		{"longer", 0, time.Minute, 5 * time.Second},
		{"asked", time.Second, 5 * time.Second, time.Second},
		{"asked and no time for it", 3 * time.Second, 5 * time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.post(1, tt.wait, in(w.r.laneOf(groupTerms{}, tt.asked, false)))
			quick := w.pulled(pullQuick)[0]
			require.Zero(t, quick.req.Heartbeat, "the server refuses a heartbeat without expires")
			w.empty(quick)
			p := w.pulled(pullOnce)[0]
			require.Equal(t, tt.want, p.req.Heartbeat)
			w.r.leave(w.now, c, context.Canceled)
			w.did()
			w.atRest()
		})
	}
}

func TestMissedHeartbeatsPullAgain(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(1, 30*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	p := w.pulled(pullOnce)[0]
	require.Equal(t, 5*time.Second, p.req.Heartbeat)
	for range 3 {
		w.pass(5 * time.Second)
		w.status(p, 100, "Idle Heartbeat")
		w.quiet()
	}
	w.pass(10 * time.Second)
	w.quiet()
	w.pass(100 * time.Millisecond)
	q := w.pulled(pullOnce)[0]
	require.EqualValues(t, 1, w.r.stats.silent)
	require.Equal(t, []*inbox{p.inbox}, w.draining)
	w.deliver(q, 1)
	w.ended(c, 1, nil)
	w.atRest()
}

func TestASilentQuickPull(t *testing.T) {
	t.Run("goes on to the long pull", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(1, 10*time.Second)
		w.pulled(pullQuick)
		w.pass(quickSilence - 1)
		w.quiet()
		w.pass(1)
		w.waits(c)
		p := w.pulled(pullOnce)[0]
		require.Equal(t, 7900*time.Millisecond, p.req.Expires)
		w.pass(p.req.Expires)
		w.status(p, 408, "Request Timeout")
		w.ended(c, 0, ErrTimeout)
		require.ErrorIs(t, c.err, errSilent, "the time-out says what stood in the way")
		w.atRest()
	})
	t.Run("is tried once more with NoWait", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(1, 10*time.Second, noWait)
		w.pulled(pullQuick)
		w.pass(quickSilence)
		w.waits(c)
		w.pulled(pullQuick)
		w.pass(quickSilence)
		w.ended(c, 0, ErrTimeout)
		require.ErrorContains(t, c.err, "MaxAckPending")
		w.atRest()
	})
	t.Run("after a part is the end", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(5, 10*time.Second)
		w.deliver(w.pulled(pullQuick)[0], 2)
		w.pass(quickSilence)
		w.ended(c, 2, nil)
		w.atRest()
	})
	t.Run("is noticed sooner once the round trip is known", func(t *testing.T) {
		w := newWorld(t, limits{})
		for range 20 {
			c := w.post(1, 10*time.Second)
			p := w.pulled(pullQuick)[0]
			w.pass(200 * time.Millisecond)
			w.deliver(p, 1)
			w.ended(c, 1, nil)
		}
		w.post(1, 10*time.Second)
		w.pulled(pullQuick)
		w.pass(799 * time.Millisecond)
		w.quiet()
		w.pass(2 * time.Millisecond)
		w.pulled(pullOnce)
	})
	t.Run("is given half a second at least", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(1, 10*time.Second)
		w.pass(time.Millisecond)
		w.deliver(w.pulled(pullQuick)[0], 1)
		w.ended(c, 1, nil)
		w.post(1, 10*time.Second)
		w.pulled(pullQuick)
		w.pass(quickFloor - 1)
		w.quiet()
		w.pass(1)
		w.pulled(pullOnce)
	})
}

func TestAClaimLeaves(t *testing.T) {
	t.Run("during the quick pull", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(1, 5*time.Second)
		p := w.pulled(pullQuick)[0]
		w.r.leave(w.now, c, context.Canceled)
		w.did()
		w.ended(c, 0, context.Canceled)
		late := w.deliver(p, 1)
		require.Equal(t, late, w.naks)
		require.EqualValues(t, 1, w.r.stats.handedBack)
		w.atRest()
	})
	t.Run("during the long pull", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(1, 5*time.Second)
		w.empty(w.pulled(pullQuick)[0])
		p := w.pulled(pullOnce)[0]
		w.r.leave(w.now, c, context.Canceled)
		w.did()
		w.ended(c, 0, context.Canceled)
		require.Equal(t, []*inbox{p.inbox}, w.draining, "drained, not just dropped")
		late := w.arrive(p.inbox, "")
		require.Equal(t, []*Msg{late}, w.naks)
		w.atRest()
		require.Empty(t, w.dropped)
	})
	t.Run("with messages", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(5, 5*time.Second)
		p := w.pulled(pullQuick)[0]
		w.deliver(p, 2)
		w.r.leave(w.now, c, context.Canceled)
		w.did()
		w.ended(c, 2, nil)
		w.empty(p)
		w.atRest()
		require.Empty(t, w.naks)
	})
	t.Run("twice", func(t *testing.T) {
		w := newWorld(t, limits{})
		c := w.post(1, 5*time.Second)
		for range 2 {
			w.r.leave(w.now, c, context.Canceled)
			w.did()
		}
		w.ended(c, 0, context.Canceled)
		w.empty(w.pulled(pullQuick)[0])
		w.atRest()
	})
}

func TestALateMessageGoesToTheNextClaim(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.newClaim(1, 5*time.Second)
	w.postLong(c)
	p := w.pulled(pullOnce)[0]
	w.r.leave(w.now, c, context.Canceled)
	w.did()
	d := w.post(1, 5*time.Second)
	quick := w.pulled(pullQuick)[0]
	m := w.arrive(p.inbox, "")
	w.ended(d, 1, nil)
	require.Same(t, m, d.got[0])
	require.Empty(t, w.naks)
	w.empty(quick)
	w.atRest()
}

func TestNoWaitDoesNotTrustAPullFromBeforeTheCall(t *testing.T) {
	w := newWorld(t, limits{})
	gone := w.post(1, 5*time.Second)
	w.r.leave(w.now, gone, context.Canceled)
	w.did()
	w.pulled(pullQuick)
	c := w.post(1, 5*time.Second, noWait)
	w.empty(w.sent[0])
	w.waits(c)
	// What was published between the two is found by a pull of its own.
	w.deliver(w.pulled(pullQuick)[0], 1)
	w.ended(c, 1, nil)
	w.atRest()
}

func TestALateMessageOfMaxBytesGoesToACallWithout(t *testing.T) {
	w := newWorld(t, limits{})
	bounded := w.post(5, 5*time.Second, maxBytes(1000))
	p := w.pulled(pullQuick)[0]
	require.Equal(t, 1000, p.req.MaxBytes)
	w.r.leave(w.now, bounded, context.Canceled)
	w.did()
	free := w.post(1, 5*time.Second)
	q := w.pulled(pullQuick)[0]
	m := w.deliver(p, 2)
	w.ended(free, 1, nil)
	require.Same(t, m[0], free.got[0])
	require.Equal(t, m[1:], w.naks)
	w.empty(p)
	w.empty(q)
	w.atRest()
}

func TestAckPolicyNoneKeepsALateMessage(t *testing.T) {
	w := newWorld(t, limits{ackNone: true})
	c := w.post(5, 5*time.Second)
	p := w.pulled(pullQuick)[0]
	w.r.leave(w.now, c, context.Canceled)
	w.did()
	late := w.deliver(p, 3)
	w.empty(p)
	require.Empty(t, w.naks, "there is nothing to NAK")

	one := w.post(1, 5*time.Second)
	w.ended(one, 1, nil)
	require.Same(t, late[0], one.got[0])
	more := w.post(5, 5*time.Second)
	w.ended(more, 2, nil)
	require.Equal(t, late[1:], more.got)
	w.quiet()
	w.atRest()
	require.Zero(t, w.r.stats.handedBack)
	require.Zero(t, w.r.stats.dropped)

	// What Close finds in the stash is lost, and counted.
	c = w.post(5, 5*time.Second)
	p = w.pulled(pullQuick)[0]
	w.r.leave(w.now, c, context.Canceled)
	w.deliver(p, 2)
	w.r.shut(w.now)
	w.did()
	w.arrive(p.inbox, "")
	require.EqualValues(t, 3, w.r.stats.dropped)
	w.atRest()
}
