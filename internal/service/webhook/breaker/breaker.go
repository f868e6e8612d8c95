// Package breaker is the circuit breaker of the systems that call receivers. It has no clock, lock or goroutine: time is an argument, and the caller
// must synchronize access to a Breaker.
package breaker

import "time"

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

// Blocked reports whether no call may begin, and until when. until is zero if that lasts until a probe has ended.
func (b *Breaker) Blocked(now time.Time) (until time.Time, blocked bool) {
	if b.underWay {
		return time.Time{}, true
	}
	return b.until, b.state == Open && now.Before(b.until)
}

// Begin begins a call, which must not be blocked. The caller passes turn to Outcome or Withdraw.
func (b *Breaker) Begin() (turn int) {
	if b.state == Open {
		b.state, b.turn = HalfOpen, b.turn+1
	}
	b.underWay = b.state == HalfOpen
	return b.turn
}

// Withdraw ends a call that gives no information about the receiver.
func (b *Breaker) Withdraw(turn int) {
	if turn == b.turn {
		b.underWay = false
	}
}

// Outcome records the outcome of a call. A success does not open the breaker. Outcome ignores a call that began before the last change of the state,
// because it gives no information about the receiver's current state.
func (b *Breaker) Outcome(rules Rules, turn int, success bool, now time.Time) {
	switch {
	case rules.InARow == 0 && rules.FailurePercent == 0 || turn != b.turn:
		return
	case b.state == HalfOpen && success:
		b.Reset()
		return
	case b.state == HalfOpen:
		b.open(rules, now)
		return
	}
	if now.Sub(b.since) >= rules.Window {
		b.since, b.ended, b.failed = now, 0, 0
	}
	b.ended++
	b.inARow++
	if success {
		b.inARow = 0
		return
	}
	if b.failed++; rules.exceeded(b) {
		b.open(rules, now)
	}
}

func (b *Breaker) open(rules Rules, now time.Time) {
	openFor := min(max(rules.Open, 2*b.openFor), max(rules.Open, rules.MostOpen))
	*b = Breaker{state: Open, openFor: openFor, until: now.Add(openFor), turn: b.turn + 1}
}

// Reset closes the breaker, even if calls are in progress.
func (b *Breaker) Reset() { *b = Breaker{turn: b.turn + 1} }

// Probe lets an open breaker probe now.
func (b *Breaker) Probe() { b.until = time.Time{} }
