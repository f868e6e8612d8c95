package domain

import "time"

// BreakerState tells whether the callbacks of a consumer are made.
type BreakerState string

// The states of a circuit breaker.
const (
	// BreakerClosed lets callbacks through.
	BreakerClosed BreakerState = "closed"
	// BreakerOpen lets none through, because too many have failed.
	BreakerOpen BreakerState = "open"
	// BreakerHalfOpen lets one through, whose outcome decides.
	BreakerHalfOpen BreakerState = "half-open"
)

// BreakerRules say when a circuit breaker opens, and for how long.
type BreakerRules struct {
	// FailurePercent of the callbacks in a Window, which had MinCallbacks, open a
	// consumer's circuit breaker for the time Open. 0: there is none.
	FailurePercent int
	MinCallbacks   int
	Window         time.Duration
	Open           time.Duration
}

// Breaker counts the callbacks of one consumer in windows of time, and opens when too
// large a share of a window has failed. Time is an argument.
type Breaker struct {
	state    BreakerState // "" counts as closed
	since    time.Time    // of the window, or of the state
	ended    int
	failed   int
	underWay bool // the probe of a half-open breaker
	turn     int  // grows with each change of the state
}

// Reset closes the breaker, whatever callbacks are in progress.
func (b *Breaker) Reset() { *b = Breaker{turn: b.turn + 1} }

func (b *Breaker) become(state BreakerState, now time.Time) {
	*b = Breaker{state: state, since: now, turn: b.turn + 1}
}

// Allow tells whether a callback may begin, with the turn that its outcome is told with; and if it may not, when to ask
// again: 0 means when the probe has ended.
func (b *Breaker) Allow(rules BreakerRules, now time.Time) (ok bool, turn int, wait time.Duration) {
	if rules.FailurePercent == 0 {
		return true, b.turn, 0
	}
	switch b.state {
	case BreakerOpen:
		if wait = rules.Open - now.Sub(b.since); wait > 0 {
			return false, b.turn, wait
		}
		b.become(BreakerHalfOpen, now)
	case BreakerHalfOpen:
	default:
		return true, b.turn, 0
	}
	if b.underWay {
		return false, b.turn, 0
	}
	b.underWay = true
	return true, b.turn, 0
}

// Withdraw is for a callback that was allowed and did not come to an end.
func (b *Breaker) Withdraw(turn int) {
	if turn == b.turn {
		b.underWay = false
	}
}

// Outcome takes in how a callback ended, and reports whether that has changed the state. One that began before the last
// change says nothing about the receiver as it is since.
func (b *Breaker) Outcome(rules BreakerRules, turn int, success bool, now time.Time) (changed bool) {
	if rules.FailurePercent == 0 || turn != b.turn {
		return false
	}
	if b.state == BreakerHalfOpen {
		if success {
			b.become(BreakerClosed, now)
		} else {
			b.become(BreakerOpen, now)
		}
		return true
	}
	if now.Sub(b.since) >= rules.Window {
		b.since, b.ended, b.failed = now, 0, 0
	}
	b.ended++
	if !success {
		b.failed++
	}
	if b.ended < rules.MinCallbacks || 100*b.failed < rules.FailurePercent*b.ended {
		return false
	}
	b.become(BreakerOpen, now)
	return true
}

// Current is the state as it is shown.
func (b *Breaker) Current() BreakerState {
	if b.state == "" {
		return BreakerClosed
	}
	return b.state
}
