package jetpull

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/wire"
)

func TestAStatusCanOvertakeItsMessages(t *testing.T) {
	for _, end := range []struct {
		code int
		desc string
	}{{409, "Batch Completed"}, {408, "Request Timeout"}, {409, "Message Size Exceeds MaxBytes"}, {409, "Server Shutdown"}} {
		t.Run(end.desc, func(t *testing.T) {
			w := newWorld(t, limits{})
			c := w.post(5, 5*time.Second, maxBytes(100_000))
			p := w.pulled(pullQuick)[0]
			w.deliver(p, 1)
			w.pending(p, end.code, end.desc, 2)
			w.waits(c)
			require.Equal(t, 2, p.inbox.pull.left, "of 5 asked for 3 were delivered and 1 has arrived")
			require.Equal(t, allRoom-2, w.r.room)
			w.pass(promiseGrace - 1)
			w.deliver(p, 1)
			w.waits(c)
			w.deliver(p, 1)
			w.ended(c, 3, nil)
			w.atRest()
		})
	}
}

func TestAPromiseThatIsNotKept(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(5, 10*time.Second)
	p := w.pulled(pullQuick)[0]
	w.pending(p, 408, "Request Timeout", 2)
	w.waits(c)
	w.status(p, 404, "No Messages") // a second end changes nothing
	w.pass(promiseGrace)
	w.waits(c)
	require.Equal(t, []*inbox{p.inbox}, w.draining, "what comes after the grace period is not lost")
	w.pulled(pullOnce)
	late := w.arrive(p.inbox, "")
	w.r.leave(w.now, c, context.Canceled)
	w.did()
	w.ended(c, 1, nil)
	require.Same(t, late, c.got[0])
	w.atRest()
}

func TestPendingThatCannotBe(t *testing.T) {
	for _, n := range []int64{6, 1 << 62} {
		w := newWorld(t, limits{})
		c := w.post(5, 10*time.Second)
		p := w.pulled(pullQuick)[0]
		w.pending(p, 408, "Request Timeout", n)
		w.waits(c)
		w.pulled(pullOnce)
	}
	// More has arrived than the status admits.
	w := newWorld(t, limits{})
	c := w.post(5, 10*time.Second)
	p := w.pulled(pullQuick)[0]
	w.deliver(p, 3)
	w.pending(p, 408, "Request Timeout", 4)
	w.ended(c, 3, nil)
	w.atRest()
}

func TestMaxBytesUsedUpEndsAPullWithoutAWord(t *testing.T) {
	w := newWorld(t, limits{})
	size := w.message("body").raw.Size()
	c := w.post(5, 5*time.Second, maxBytes(2*size))
	p := w.pulled(pullQuick)[0]
	w.deliver(p, 1)
	w.waits(c)
	w.deliver(p, 1)
	w.ended(c, 2, nil)
	w.quiet()
	w.atRest()
}

func TestMaxBytesOfTheRestOfABatch(t *testing.T) {
	w := newWorld(t, limits{})
	size := w.message("body").raw.Size()
	c := w.post(5, 5*time.Second, fill, maxBytes(3*size+1))
	p := w.pulled(pullQuick)[0]
	w.deliver(p, 2)
	w.empty(p)
	long := w.pulled(pullPlain)[0]
	require.Equal(t, size+1, long.req.MaxBytes)
	require.Equal(t, 3, long.req.Batch)
	w.deliver(long, 1)
	w.pending(long, 409, "Message Size Exceeds MaxBytes", 2)
	w.ended(c, 3, nil)
	w.atRest()
}

func TestMaxBytesSharesWithNone(t *testing.T) {
	w := newWorld(t, limits{})
	for range 3 {
		w.post(1, 5*time.Second, maxBytes(1000))
	}
	pulls := w.pulled(pullQuick, pullQuick, pullQuick)
	for i, p := range pulls {
		w.deliver(p, 1)
		w.ended(w.posted[i], 1, nil)
	}
	w.atRest()
	// The lanes of such calls do not add up.
	for range 100 {
		w.post(1, 5*time.Second, maxBytes(1000))
		w.deliver(w.pulled(pullQuick)[0], 1)
	}
	require.LessOrEqual(t, len(w.r.lanes), 4)
}

func TestCallersShareTheNextPull(t *testing.T) {
	w := newWorld(t, limits{})
	for range 64 {
		w.post(1, 5*time.Second)
	}
	var first []*pull
	for _, p := range w.sent {
		require.Equal(t, 1, p.req.Batch)
		first = append(first, p)
	}
	require.LessOrEqual(t, len(first), 8)
	w.seen = len(w.sent)
	ms := w.deliver(first[0], 1)
	shared := w.pulled(pullQuick)[0]
	require.Equal(t, 64-len(first), shared.req.Batch, "all that wait share the next pull")
	for _, p := range first[1:] {
		ms = append(ms, w.deliver(p, 1)...)
	}
	ms = append(ms, w.deliver(shared, shared.req.Batch)...)
	for i, c := range w.posted {
		w.ended(c, 1, nil)
		require.Same(t, ms[i], c.got[0], "in the order in which they came")
	}
	w.quiet()
	w.atRest()
}

func TestCallersShareLongPulls(t *testing.T) {
	w := newWorld(t, limits{})
	var claims []*claim
	for range 23 {
		claims = append(claims, w.newClaim(1, 5*time.Second))
	}
	w.postLong(claims...)
	long := w.pulled(pullOnce)[0]
	require.Equal(t, 23, long.req.Batch)
	w.pass(time.Second)
	w.deliver(long, 3)
	w.empty(long)
	again := w.pulled(pullOnce)[0]
	require.Equal(t, 20, again.req.Batch)
	require.Equal(t, 3900*time.Millisecond, again.req.Expires)
	w.deliver(again, 20)
	for _, c := range claims {
		w.ended(c, 1, nil)
	}
	w.atRest()
}

func TestALongPullLastsAsLongAsItsMostPatientClaim(t *testing.T) {
	w := newWorld(t, limits{})
	hasty, patient := w.newClaim(1, time.Second), w.newClaim(1, 4*time.Second)
	w.postLong(hasty, patient)
	p := w.pulled(pullOnce)[0]
	require.Equal(t, 3900*time.Millisecond, p.req.Expires)
	w.pass(time.Second)
	w.ended(hasty, 0, ErrTimeout)
	w.deliver(p, 1)
	w.ended(patient, 1, nil)
	w.empty(p)
	w.atRest()
}

func TestALongPullWithDemandToSpareIsShared(t *testing.T) {
	w := newWorld(t, limits{})
	leaves, stays := w.newClaim(3, 5*time.Second), w.newClaim(2, 5*time.Second)
	w.postLong(leaves, stays)
	require.Equal(t, 5, w.pulled(pullOnce)[0].req.Batch)
	w.r.leave(w.now, leaves, context.Canceled)
	w.did()
	w.quiet()
	later := w.post(3, 4*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	w.quiet()
	w.waits(later)
	tooMuch := w.post(1, 4*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	require.Equal(t, 1, w.pulled(pullOnce)[0].req.Batch, "nothing is to spare any more")
	w.waits(tooMuch)
	w.r.leave(w.now, later, context.Canceled)
	w.did()
	tooLong := w.post(1, 9*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	require.Equal(t, 8900*time.Millisecond, w.pulled(pullOnce)[0].req.Expires, "it would end too early for this claim")
	w.waits(tooLong)
}

func TestDifferentTermsDoNotShare(t *testing.T) {
	w := newWorld(t, limits{})
	terms := []*lane{
		w.r.laneOf(groupTerms{}, 0, false),
		w.r.laneOf(groupTerms{group: "a"}, 0, false),
		w.r.laneOf(groupTerms{group: "b"}, 0, false),
		w.r.laneOf(groupTerms{group: "a", priority: 3}, 0, false),
		w.r.laneOf(groupTerms{group: "a", minPending: 3}, 0, false),
		w.r.laneOf(groupTerms{group: "a", minAckPending: 3}, 0, false),
		w.r.laneOf(groupTerms{}, time.Second, false),
	}
	for i, l := range terms {
		for _, o := range terms[:i] {
			require.NotSame(t, o, l)
		}
		w.post(1, 5*time.Second, in(l))
	}
	require.Same(t, terms[1], w.r.laneOf(groupTerms{group: "a", given: givenPriority}, 0, false), "what was given explicitly is no term")
	pulls := w.pulled(pullQuick, pullQuick, pullQuick, pullQuick, pullQuick, pullQuick, pullQuick)
	require.JSONEq(t, `{"batch":1,"no_wait":true,"group":"a","priority":3}`, string(pulls[3].req.Append(nil)))
	require.JSONEq(t, `{"batch":1,"no_wait":true,"group":"a","min_pending":3}`, string(pulls[4].req.Append(nil)))
	require.JSONEq(t, `{"batch":1,"no_wait":true,"group":"a","min_ack_pending":3}`, string(pulls[5].req.Append(nil)))
	for i, p := range pulls {
		w.deliver(p, 1)
		w.ended(w.posted[i], 1, nil)
	}
	w.atRest()
}

func TestAFetchLargerThanTheChannel(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(10_000, 5*time.Second)
	left := 10_000
	for left > 0 {
		p := w.pulled(pullQuick)[0]
		require.Equal(t, min(left, allRoom), p.req.Batch)
		w.deliver(p, p.req.Batch)
		left -= p.req.Batch
	}
	w.ended(c, 10_000, nil)
	w.atRest()
}

func TestOneCallDoesNotStarveOthersOfRoom(t *testing.T) {
	other := groupTerms{group: "other"}
	t.Run("long pull", func(t *testing.T) {
		w := newWorld(t, limits{})
		big := w.post(1_000_000, time.Minute, fill)
		w.empty(w.pulled(pullQuick)[0])
		w.pulled(pullPlain)
		require.Positive(t, w.r.room)
		c := w.post(1, time.Second, in(w.r.laneOf(other, 0, false)))
		w.deliver(w.pulled(pullQuick)[0], 1)
		w.ended(c, 1, nil)
		w.waits(big)
	})
	t.Run("quick pull", func(t *testing.T) {
		w := newWorld(t, limits{})
		big := w.post(1_000_000, time.Minute, fill)
		p := w.pulled(pullQuick)[0]
		require.Zero(t, w.r.room)
		c := w.post(1, 10*time.Second, in(w.r.laneOf(other, 0, false)))
		w.quiet()
		w.deliver(p, 1)
		w.waits(big)
		w.deliver(w.pulled(pullQuick)[0], 1)
		w.ended(c, 1, nil)
	})
	t.Run("acknowledgements are sent all the same", func(t *testing.T) {
		w := newWorld(t, limits{})
		w.post(1_000_000, time.Minute, fill)
		w.pulled(pullQuick)
		require.Zero(t, w.r.room)
		w.post(1, 10*time.Second)
		m := w.message("done")
		w.post(1, 10*time.Second, carriedBy(m))
		require.Same(t, m, w.pulled(pullQuick)[0].carrier)
	})
}

func TestAcknowledgementsThatTakeUpTheRoom(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(allRoom-1, time.Minute, fill, carriedBy(w.message("done")))
	w.pulled(pullQuick)
	require.Equal(t, 1, w.r.room)
	// A claim that waits, and one with an acknowledgement, are covered at once.
	waits := w.newClaim(1, time.Minute)
	w.lane().claims = append(w.lane().claims, waits)
	w.posted = append(w.posted, waits)
	w.post(1, time.Minute, carriedBy(w.message("done")))
	for _, p := range w.pulled(pullQuick, pullQuick) {
		require.Equal(t, 1, p.req.Batch, "the server would take 0 for 1, and the message come unaccounted")
	}
}

func TestTheConsumersLimitOnABatch(t *testing.T) {
	w := newWorld(t, limits{batch: 10})
	w.r.disconnected()
	for range 3 {
		w.post(5, 5*time.Second)
	}
	w.r.reconnected(w.now)
	w.did()
	asked := 0
	for _, p := range w.sent {
		require.LessOrEqual(t, p.req.Batch, 10)
		asked += p.req.Batch
	}
	require.GreaterOrEqual(t, asked, 10, "claims share as far as the limit goes")
	w.seen = len(w.sent)

	// A single call over the limit is the caller's mistake, for the server to tell.
	w = newWorld(t, limits{batch: 10})
	over := w.post(11, 5*time.Second)
	p := w.pulled(pullQuick)[0]
	require.Equal(t, 11, p.req.Batch)
	w.status(p, 409, "Exceeded MaxRequestBatch of 10")
	w.ended(over, 0, ErrLimitExceeded)
}

func TestClaimsThatDoNotFitOneLongPullGetOneEach(t *testing.T) {
	w := newWorld(t, limits{batch: 10})
	w.postLong(w.newClaim(6, 5*time.Second), w.newClaim(6, 5*time.Second), w.newClaim(4, 5*time.Second), w.newClaim(6, 5*time.Second, fill))
	pulls := w.pulled(pullOnce, pullOnce, pullPlain)
	require.Equal(t, 10, pulls[0].req.Batch)
	require.Equal(t, 6, pulls[1].req.Batch)
}

func TestAnOldServersOneShotEndsAtOnce(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(5, 5*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	w.pass(time.Millisecond)
	w.empty(w.pulled(pullOnce)[0])
	p := w.pulled(pullPlain)[0]
	require.Equal(t, 1, p.req.Batch, "with a plain pull for one the caller has the first message at once")
	require.False(t, p.req.NoWait)
	w.pass(time.Second)
	w.deliver(p, 1)
	w.waits(c)
	rest := w.pulled(pullQuick)[0]
	require.Equal(t, 4, rest.req.Batch, "and what else is there with it")
	w.deliver(rest, 2)
	w.empty(rest)
	w.ended(c, 3, nil)

	d := w.post(5, 5*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	w.pulled(pullPlain)
	w.pass(5 * time.Second)
	w.ended(d, 0, ErrTimeout)
	w.atRest()
}

func TestLosingTheRaceIsNoSignOfAnOldServer(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(1, 5*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	p := w.pulled(pullOnce)[0]
	w.pass(3 * time.Second)
	w.empty(p)
	w.waits(c)
	w.pulled(pullOnce)
}

func TestAckNextCarriesThePull(t *testing.T) {
	w := newWorld(t, limits{})
	m, n := w.message("done"), w.message("done")
	c := w.post(1, 5*time.Second, carriedBy(m))
	// Each acknowledgement carries its own pull, whatever is in flight.
	d := w.post(1, 5*time.Second, carriedBy(n))
	pulls := w.pulled(pullQuick, pullQuick)
	require.Same(t, m, pulls[0].carrier)
	require.Same(t, n, pulls[1].carrier)
	w.empty(pulls[0])
	long := w.pulled(pullOnce)[0]
	require.Nil(t, long.carrier)
	w.deliver(long, 1)
	w.ended(c, 1, nil)
	w.deliver(pulls[1], 1)
	w.ended(d, 1, nil)
	require.Empty(t, w.acks)
	w.atRest()
}

func TestAckNextAcknowledgesWhereItCannotPull(t *testing.T) {
	t.Run("disconnected", func(t *testing.T) {
		w := newWorld(t, limits{})
		w.r.disconnected()
		m := w.message("done")
		c := w.post(1, 5*time.Second, carriedBy(m))
		require.Equal(t, []*Msg{m}, w.acks)
		w.quiet()
		w.r.reconnected(w.now)
		w.did()
		p := w.pulled(pullQuick)[0]
		require.Nil(t, p.carrier, "it has been acknowledged")
		w.deliver(p, 1)
		w.ended(c, 1, nil)
		w.atRest()
	})
	t.Run("backing off", func(t *testing.T) {
		w := newWorld(t, limits{})
		w.post(1, 5*time.Second)
		w.status(w.pulled(pullQuick)[0], 503, "")
		m := w.message("done")
		w.post(1, 5*time.Second, carriedBy(m))
		require.Equal(t, []*Msg{m}, w.acks)
		w.pass(250 * time.Millisecond)
		require.Nil(t, w.pulled(pullQuick)[0].carrier)
	})
}

func TestStaleFramesChangeNothing(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(1, 5*time.Second)
	p := w.pulled(pullQuick)[0]
	w.deliver(p, 1)
	w.ended(c, 1, nil)
	d := w.post(1, 5*time.Second)
	q := w.pulled(pullQuick)[0]
	require.Same(t, p.inbox, q.inbox)
	// The status of the pull before comes late, on the same inbox.
	w.r.status(w.now, p.inbox, p.token, classify(wire.Status{Code: 409, Description: "Consumer Deleted"}))
	w.did()
	w.waits(d)
	w.deliver(q, 1)
	w.ended(d, 1, nil)
	w.r.status(w.now, q.inbox, q.token, classify(wire.Status{Code: 404}))
	w.did()
	w.atRest()
}

func TestAStrayMessageOnAnInboxThatHasServedNoPull(t *testing.T) {
	w := newWorld(t, limits{})
	ib := &inbox{subject: "in.0.*", prefix: "in.0.", open: true}
	w.r.idle = append(w.r.idle, ib)
	m := w.arrive(ib, "")
	require.Equal(t, []*Msg{m}, w.naks)
	w.atRest()
}

func TestShutEndsEverything(t *testing.T) {
	w := newWorld(t, limits{})
	a := w.post(1, 5*time.Second)
	w.empty(w.pulled(pullQuick)[0])
	long := w.pulled(pullOnce)[0]
	b := w.post(5, 5*time.Second)
	quick := w.pulled(pullQuick)[0]
	idle := w.newClaim(1, 5*time.Second, maxBytes(9))
	w.posted = append(w.posted, idle)
	w.r.post(w.now, idle)
	w.did()
	w.empty(w.pulled(pullQuick)[0]) // leaves an idle inbox behind
	w.r.leave(w.now, idle, context.Canceled)
	w.did()
	ib := w.r.idle[0]
	w.r.shut(w.now)
	w.did()
	for _, c := range []*claim{a, b} {
		w.ended(c, 0, ErrClosed)
	}
	require.Contains(t, w.draining, long.inbox)
	require.Contains(t, w.draining, quick.inbox)
	require.Contains(t, w.dropped, ib)
	require.True(t, w.r.reading(), "what is on the wire is still awaited")
	m := w.arrive(quick.inbox, "")
	require.Equal(t, []*Msg{m}, w.naks)
	late := w.post(1, 5*time.Second)
	w.ended(late, 0, ErrClosed)
	w.atRest()
}

func TestDieRefusesWhatComesAfter(t *testing.T) {
	w := newWorld(t, limits{})
	why := fmt.Errorf("%w: gone", ErrClosed)
	a := w.post(1, 5*time.Second)
	w.r.die(w.now, why)
	w.r.die(w.now, ErrTimeout)
	w.did()
	w.ended(a, 0, why)
	b := w.post(1, 5*time.Second)
	w.ended(b, 0, why)
}
