// Package breaker is the circuit breaker of the systems that call receivers. It has no clock, lock or goroutine: time is an
// argument, and the caller synchronizes access to a Breaker.
package breaker

import (
	"math"
	"time"
)

// State says whether calls to a receiver are made.
type State string

// The states of a circuit breaker.
const (
	// Closed lets calls through.
	Closed State = "closed"
	// Open lets none through, because too many have failed.
	Open State = "open"
	// HalfOpen lets one through, whose outcome decides.
	HalfOpen State = "half-open"
)

// Forever is a wait that time does not end.
const Forever time.Duration = math.MaxInt64

// Rules say when a circuit breaker opens, and for how long. The zero Rules never open one.
type Rules struct {
	// InARow failures without a success between them open the breaker. 0: they do not.
	InARow int
	// FailurePercent of the calls in a Window, which had MinCallbacks, open the breaker. 0: they do not.
	FailurePercent int
	MinCallbacks   int
	Window         time.Duration
	// Open is the time without calls, after which one probes. A probe that fails doubles the time, up to MostOpen.
	Open     time.Duration
	MostOpen time.Duration // less than Open: as long as Open
}

func (r Rules) exceeded(b *Breaker) bool {
	return r.InARow > 0 && b.inARow >= r.InARow ||
		r.FailurePercent > 0 && b.ended >= r.MinCallbacks && 100*b.failed >= r.FailurePercent*b.ended
}

// Breaker counts the calls to one receiver, opens when too many have failed, and lets one call at a time probe after a while.
type Breaker struct {
	state    State     // "" counts as closed
	since    time.Time // of the window
	ended    int       // in the window
	failed   int       // in the window
	inARow   int
	openFor  time.Duration
	until    time.Time // when a probe may begin
	underWay bool      // the probe
	turn     int       // grows with each change of the state
}

// Current is the state.
func (b *Breaker) Current() State {
	if b.state == "" {
		return Closed
	}
	return b.state
}

// Wait is how long no call may begin. 0: one may now. [Forever]: none may until the probe has ended.
func (b *Breaker) Wait(now time.Time) time.Duration {
	switch {
	case b.Current() == Closed:
		return 0
	case b.underWay:
		return Forever
	}
	return max(0, b.until.Sub(now))
}

// Allow reports whether a call may begin, with the turn that its outcome is reported with.
func (b *Breaker) Allow(now time.Time) (turn int, ok bool) {
	if b.Wait(now) > 0 {
		return b.turn, false
	}
	if b.state == Open {
		b.state, b.turn = HalfOpen, b.turn+1
	}
	b.underWay = b.state == HalfOpen
	return b.turn, true
}

// Withdraw is for a call that was allowed and says nothing about the receiver.
func (b *Breaker) Withdraw(turn int) {
	if turn == b.turn {
		b.underWay = false
	}
}

// Outcome takes in how a call ended, and reports whether that has changed the state. A success does not open the breaker. A call that
// began before the last change says nothing about the receiver as it is since.
func (b *Breaker) Outcome(rules Rules, turn int, success bool, now time.Time) (changed bool) {
	if rules.InARow == 0 && rules.FailurePercent == 0 || turn != b.turn {
		return false
	}
	if b.state == HalfOpen {
		if success {
			b.Reset()
		} else {
			b.open(rules, now)
		}
		return true
	}
	if now.Sub(b.since) >= rules.Window {
		b.since, b.ended, b.failed = now, 0, 0
	}
	b.ended++
	b.inARow++
	if success {
		b.inARow = 0
		return false
	}
	if b.failed++; !rules.exceeded(b) {
		return false
	}
	b.open(rules, now)
	return true
}

func (b *Breaker) open(rules Rules, now time.Time) {
	openFor := min(max(rules.Open, 2*b.openFor), max(rules.Open, rules.MostOpen))
	*b = Breaker{state: Open, openFor: openFor, until: now.Add(openFor), turn: b.turn + 1}
}

// Reset closes the breaker, whatever calls are in progress.
func (b *Breaker) Reset() { *b = Breaker{turn: b.turn + 1} }

// Probe lets an open breaker probe at once.
func (b *Breaker) Probe() { b.until = time.Time{} }
