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

	// quickSilence bounds the silence of a no-wait pull, and oneShotSilence that of a one-shot after it has brought
	// messages.
	quickSilence   = time.Second
	oneShotSilence = 500 * time.Millisecond
	// leastPatience is the minimum wait for the answer to a no-wait pull that a waiting call hurries.
	leastPatience = 150 * time.Millisecond
	// replyLife is how long no-wait pulls may share a reply subject. The election of a leader takes longer.
	replyLife = 100 * time.Millisecond
	// briefExpires is the expiry of the second pull of a NoWait call.
	briefExpires = 100 * time.Millisecond
	// expiryGrace is how long after its expiry a pull may still be answered.
	expiryGrace = time.Second
	// callBeat is the heartbeat of long pulls of calls with a deadline, if the wait is long enough. leastBeat is the
	// shortest heartbeat.
	callBeat  = time.Second
	leastBeat = 20 * time.Millisecond
	// StandingHeartbeat is the heartbeat of a standing demand's pulls. If the server has dropped a pull without a
	// status, the missing heartbeats show it within 5 s.
	StandingHeartbeat = 2 * time.Second
	// stepWidth is how long after a multiple of StandingHeartbeat a pull counts as sent on it.
	stepWidth = 250 * time.Millisecond
	// probeExpires is the expiry of a probe, the pull that is sent after trouble.
	probeExpires = 600 * time.Millisecond

	// LeastLife is the shortest interval of pulls that expire without messages, if the consumer's MaxRequestExpires is shorter.
	LeastLife = 100 * time.Millisecond

	firstBackOff  = 250 * time.Millisecond
	lastBackOff   = 800 * time.Millisecond
	silentBackOff = 5 * time.Second

	// promiseGrace is how long messages that a status has counted may take to arrive. On R3 they wait for a quorum, and
	// the status does not. promiseHold is how long a standing demand waits for them before it orders others instead:
	// they can be lost, for example with a leader.
	promiseGrace = 2 * time.Second
	promiseHold  = 800 * time.Millisecond

	// farTrip is the round trip above which the consumer's server is far, and can send many messages in a round trip. Then an inbox
	// that is not needed any more stays subscribed while messages arrive on it, for lateMost.
	farTrip  = 5 * time.Millisecond
	lateMost = time.Second
	// fillMost is the time in which the pulls of a standing demand behind a slow link are filled, if messages keep arriving. With a
	// round trip more, it is still within lateMost.
	fillMost = 600 * time.Millisecond
	// stallLeast is the time without an answer, besides two round trips, after which the link counts as stalled.
	stallLeast = 500 * time.Millisecond
	// leftMost is how long an inbox that was given up stays subscribed, and a silent pull open, while the connection is up and no
	// request is answered. With replay policy original, silent pulls stay open for as long.
	leftMost = 90 * time.Second

	minWait = time.Millisecond
)

// expiresIn returns the expiry of a pull whose caller waits for left.
func expiresIn(left time.Duration) time.Duration {
	if left >= 2*ExpiresMargin {
		return left - ExpiresMargin
	}
	return max(minWait, left-left/10) // the margin would take all of a short wait
}

// callHeartbeat returns the heartbeat of a long pull: asked, unless that is more than half of the expiry, which the server refuses.
// Otherwise it is chosen so that two missed heartbeats cost at most half of the wait. It is 0 if it would be below leastBeat.
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

// backOff returns the wait before try n+1, with a jitter of a fifth either way. It is at most most.
func backOff(n int, most time.Duration, rng *rand.Rand) time.Duration {
	d := firstBackOff
	for range min(n, 8) {
		d = min(2*d, most*5/6)
	}
	return d + time.Duration((rng.Float64()*2-1)*float64(d)/5)
}
