package pull

import (
	"math/rand/v2"
	"time"
)

const (
	// ExpiresMargin is how much earlier than the caller's deadline the server ends a pull (ADR-13), so that its
	// status arrives in time.
	ExpiresMargin = 100 * time.Millisecond
	// StandingExpires is how long the pulls of a standing demand live.
	StandingExpires = 30 * time.Second

	// quickSilence is how long a no-wait pull may stay unanswered, and oneShotSilence how long a one-shot that has brought
	// messages.
	quickSilence   = time.Second
	oneShotSilence = 500 * time.Millisecond
	// leastPatience is the least that a no-wait pull may stay silent where calls with short waits share it.
	leastPatience = 150 * time.Millisecond
	// replyLife is how long no-wait pulls may have a common reply subject: less than the server needs to elect a leader.
	replyLife = 100 * time.Millisecond
	// briefExpires is the life of the pull with which a NoWait call asks again.
	briefExpires = 100 * time.Millisecond
	// expiryGrace is how long after its expiry a pull may still be answered.
	expiryGrace = time.Second
	// callBeat is the heartbeat of the long pulls of calls with a deadline, where the wait is long enough, and
	// leastBeat the shortest that is asked for.
	callBeat  = time.Second
	leastBeat = 20 * time.Millisecond
	// StandingHeartbeat is the heartbeat of a standing demand's pulls: one that the server has dropped without a status
	// is missed within 5 s.
	StandingHeartbeat = 2 * time.Second
	// stepWidth is how long after a multiple of StandingHeartbeat a pull counts as sent on it.
	stepWidth = 250 * time.Millisecond
	// probeExpires is the life of the pull that is sent after trouble.
	probeExpires = 600 * time.Millisecond

	// LeastLife is how often pulls are sent at most that expire without messages, where the consumer's MaxRequestExpires is shorter.
	LeastLife = 100 * time.Millisecond

	firstBackOff  = 250 * time.Millisecond
	lastBackOff   = 800 * time.Millisecond
	silentBackOff = 5 * time.Second

	// promiseGrace is how long messages may take that a status has counted. On R3 they wait for a quorum, and the
	// status does not. promiseHold is how long a standing demand waits for them before it orders others instead: they
	// can be lost, for example with a leader.
	promiseGrace = 2 * time.Second
	promiseHold  = 800 * time.Millisecond

	// farTrip is a round trip to the consumer's server in which it can send many messages. Then an inbox that nobody needs stays
	// subscribed while messages still arrive on it, for lateMost.
	farTrip  = 5 * time.Millisecond
	lateMost = time.Second
	// fillMost is how long the pulls of a standing demand behind a slow link take to be filled, if messages keep arriving. It leaves
	// lateMost enough for a round trip.
	fillMost = 600 * time.Millisecond
	// stallLeast is how long no request was answered, besides two round trips, if the link was stalled.
	stallLeast = 500 * time.Millisecond
	// leftMost is how long an inbox that was given up stays subscribed, and a pull silent, although the connection is up and no
	// request is answered. With replay policy original silent pulls are awaited for as long.
	leftMost = 90 * time.Second

	minWait = time.Millisecond
)

// expiresIn is the expiry of a pull whose caller waits for left.
func expiresIn(left time.Duration) time.Duration {
	if left >= 2*ExpiresMargin {
		return left - ExpiresMargin
	}
	return max(minWait, left-left/10) // the margin would take all of a short wait
}

// callHeartbeat is the heartbeat of a long pull: the one asked for, if the server takes it, which refuses more than half of the
// expiry. Otherwise two missed heartbeats cost at most half of the wait, and there is none if it would be below leastBeat.
func callHeartbeat(asked, expires time.Duration) time.Duration {
	if asked > 0 && 2*asked <= expires {
		return asked
	}
	if beat := min(callBeat, expires/4-ExpiresMargin/4); beat >= leastBeat {
		return beat
	}
	return 0
}

// inStep shortens expires so that the pull ends, and the next one begins, on a multiple of StandingHeartbeat. Then all idle
// pulls of a connection have their heartbeats at the same time, which wakes the process once for all of them. A pull that
// begins at another time lives for two heartbeats at most, so that the next is in step.
func inStep(now At, expires time.Duration) time.Duration {
	if expires < 2*StandingHeartbeat {
		return expires
	}
	off := now % StandingHeartbeat
	if off > stepWidth {
		expires = 2 * StandingHeartbeat
	}
	return expires - off
}

// backOff is the wait before try n+1, jittered by a fifth either way, most at most.
func backOff(n int, most time.Duration, rng *rand.Rand) time.Duration {
	d := firstBackOff
	for range min(n, 8) {
		d = min(2*d, most*5/6)
	}
	return d + time.Duration((rng.Float64()*2-1)*float64(d)/5)
}
