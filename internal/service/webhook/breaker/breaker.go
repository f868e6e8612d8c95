// Package breaker is the circuit breaker of the systems that call receivers. It has no clock, lock or goroutine: time is an argument, and the caller
// must synchronize access to a Breaker.
package breaker

import (
	"math"
	"time"
)

// State is the state of a circuit breaker.
type State string

// The states of a circuit breaker.
const (
	// Closed allows calls.
	Closed State = "closed"
	// Open allows no calls, because too many have failed.
	Open State = "open"
	// HalfOpen allows one call, whose outcome decides the next state.
	HalfOpen State = "half-open"
)

// Forever is a wait that does not end by time.
const Forever time.Duration = math.MaxInt64

// Rules configure when a circuit breaker opens, and for how long. The zero Rules never open one.
type Rules struct {
	// InARow is the number of consecutive failures that opens the breaker. 0 means that they do not.
	InARow int
	// FailurePercent is the percentage of failed calls in a Window with at least MinCallbacks calls that opens the breaker. 0 means none does.
	FailurePercent int
	MinCallbacks   int
	Window         time.Duration
	// Open is how long no calls are allowed. Then one call probes. A failed probe doubles the time, up to MostOpen.
	Open     time.Duration
	MostOpen time.Duration // less than Open means Open
}

func (r Rules) exceeded(b *Breaker) bool {
	return r.InARow > 0 && b.inARow >= r.InARow ||
		r.FailurePercent > 0 && b.ended >= r.MinCallbacks && 100*b.failed >= r.FailurePercent*b.ended
}

// Breaker counts the calls to one receiver. It opens when too many have failed. After a while, it lets one call at a time probe.
type Breaker struct {
	state    State     // empty means closed
	since    time.Time // of the window
	ended    int       // in the window
	failed   int       // in the window
	inARow   int
	openFor  time.Duration
	until    time.Time // when a probe may begin
	underWay bool      // a probe is in progress
	turn     int       // incremented with each change of the state
}

// Current returns the state.
func (b *Breaker) Current() State {
	if b.state == "" {
		return Closed
	}
	return b.state
}

// Wait returns how long no call may begin. 0 means that one may begin now. [Forever] means that none may until the probe has ended.
func (b *Breaker) Wait(now time.Time) time.Duration {
	switch {
	case b.Current() == Closed:
		return 0
	case b.underWay:
		return Forever
	}
	return max(0, b.until.Sub(now))
}

// Allow reports whether a call may begin. The caller passes turn to Outcome.
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

// Withdraw ends an allowed call that gives no information about the receiver.
func (b *Breaker) Withdraw(turn int) {
	if turn == b.turn {
		b.underWay = false
	}
}

// Outcome records the outcome of a call, and reports whether that has changed the state. A success does not open the breaker. Outcome ignores a call
// that began before the last change of the state, because it gives no information about the receiver's current state.
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

// Reset closes the breaker, even if calls are in progress.
func (b *Breaker) Reset() { *b = Breaker{turn: b.turn + 1} }

// Probe lets an open breaker probe now.
func (b *Breaker) Probe() { b.until = time.Time{} }
