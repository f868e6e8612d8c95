package jetpull

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLanesOfCallsThatAreOverDoNotAddUp(t *testing.T) {
	w := newWorld(t, limits{})
	for i := range 1000 {
		// A caller that derives its heartbeat from the time it has left.
		heartbeat := time.Second + time.Duration(i)
		c := w.newClaim(1, 5*time.Second, in(w.r.laneOf(groupTerms{}, heartbeat, false)))
		w.r.post(w.now, c)
		w.did()
		w.deliver(w.pulled(pullQuick)[0], 1)
		require.True(t, c.done)
	}
	require.Less(t, len(w.r.lanes), 100)
	w.atRest()
}

func TestALateMessageOfAForgottenLaneWaitsForTheNextCall(t *testing.T) {
	w := newWorld(t, limits{ackNone: true})
	odd := groupTerms{priority: 7}
	c := w.newClaim(1, 5*time.Second, in(w.r.laneOf(odd, 0, false)))
	w.r.post(w.now, c)
	w.did()
	p := w.pulled(pullQuick)[0]
	w.empty(p)
	long := w.pulled(pullOnce)[0]
	w.r.leave(w.now, c, context.Canceled)
	w.did()
	for i := range 200 { // other calls come and go, and their lanes with them
		w.r.laneOf(groupTerms{minPending: int64(i + 1)}, 0, false)
	}
	late := w.arrive(long.inbox, "")
	next := w.newClaim(1, 5*time.Second, in(w.r.laneOf(odd, 0, false)))
	w.r.post(w.now, next)
	w.did()
	require.Equal(t, []*Msg{late}, next.got)
	w.atRest()
}

func TestAckPolicyNoneKeepsALateMessageForACallWithMaxBytes(t *testing.T) {
	w := newWorld(t, limits{ackNone: true})
	size := w.message("body").raw.Size()
	first := w.post(1, 5*time.Second, maxBytes(10*size))
	w.empty(w.pulled(pullQuick)[0])
	long := w.pulled(pullOnce)[0]
	w.r.leave(w.now, first, context.Canceled)
	w.did()
	late := w.arrive(long.inbox, "")
	small := w.post(1, 5*time.Second, maxBytes(size-1))
	w.waits(small)
	w.r.leave(w.now, small, context.Canceled)
	w.did()
	next := w.post(1, 5*time.Second, maxBytes(size))
	w.ended(next, 1, nil)
	require.Same(t, late, next.got[0])
}

func TestAPullThatABrokenConnectionDidNotTakeIsSentAgain(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(1, 5*time.Second)
	stand := w.post(0, 0, standingOf(8), in(w.r.laneOf(groupTerms{}, time.Second, false)))
	for _, p := range w.pulled(pullQuick, pullStream) {
		w.r.notSent(w.now, p.inbox)
		w.did()
	}
	w.quiet()
	w.waits(c)
	w.waits(stand)
	require.Equal(t, []string{"problem " + errPullLost.Error()}, w.notices)
	w.pass(time.Second)
	w.deliver(w.pulled(pullQuick, pullStream)[0], 1)
	w.ended(c, 1, nil)
	w.r.leave(w.now, stand, context.Canceled)
	w.did()
	w.atRest()
}
