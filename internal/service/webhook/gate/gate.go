// Package gate decides when the next POST to a receiver may begin, and if not now, why and until when. It has no clock, lock or goroutine: time is an
// argument, and the caller must synchronize access to a Gate.
package gate

import (
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
)

// Reason is why no POST may begin.
type Reason string

// The reasons, in order of precedence.
const (
	Elsewhere   Reason = "elsewhere"   // another process makes the POSTs, or this one hands over
	Disabled    Reason = "disabled"    // the receiver is gone, and has not been configured again
	Paused      Reason = "pause"       // an operator paused the receiver
	StoreDown   Reason = "store"       // the outcome of a POST could not be stored
	Breaker     Reason = "breaker"     // the receiver failed too often
	Hold        Reason = "hold"        // the receiver asked for a pause
	Concurrency Reason = "concurrency" // the maximum number of POSTs is in progress
	Rate        Reason = "rate"        // the window of the rate limit is full
)

// Wait is why no POST may begin. The zero Wait means that one may.
type Wait struct {
	For Reason `json:"for"`
	// Until is when the reason ends by itself. Zero means that it does not, or that the time is unknown.
	Until time.Time `json:"until,omitzero"`
}

// Config is the state of the receiver that the user of a gate knows. It may differ in each call.
type Config struct {
	Elsewhere, Disabled, Paused, StoreDown bool

	Breaker     breaker.Rules
	Concurrency int // 0 means no limit
	// Limit is the maximum number of POSTs in any Window. 0 means no limit.
	Limit  int
	Window time.Duration
	// UntilEnd makes a POST count from its start until a Window after its end. The receiver sees it at some time in between, so no window at the
	// receiver has more than Limit, whatever the network does. Without UntilEnd, a POST counts for a Window from its start, and a slow receiver does
	// not lower the rate.
	UntilEnd bool
}

// Gate has the state of the POSTs to one receiver on which the next decision depends. The zero Gate is ready to use.
type Gate struct {
	breaker  breaker.Breaker
	hold     time.Time // end of the pause that the receiver asked for
	inFlight int
	counted  []time.Time // when each POST began to count: at its start, or with UntilEnd at its end; oldest first
}

// Next returns why no POST may begin, or the zero Wait.
func (g *Gate) Next(c Config, now time.Time) Wait {
	probe, open := g.breaker.Blocked(now)
	switch {
	case c.Elsewhere:
		return Wait{For: Elsewhere}
	case c.Disabled:
		return Wait{For: Disabled}
	case c.Paused:
		return Wait{For: Paused}
	case c.StoreDown:
		return Wait{For: StoreDown}
	case open:
		return Wait{Breaker, probe}
	case now.Before(g.hold):
		return Wait{Hold, g.hold}
	case c.Concurrency > 0 && g.inFlight >= c.Concurrency:
		return Wait{For: Concurrency}
	}
	surplus := g.used(c, now) - c.Limit
	switch {
	case c.Limit == 0 || surplus < 0:
		return Wait{}
	case surplus >= len(g.counted):
		return Wait{For: Rate} // until POSTs in progress end
	}
	return Wait{Rate, g.counted[surplus].Add(c.Window)} // after the limit was lowered, several must leave the window
}

// used returns the number of POSTs in the window. It removes those that have left it.
func (g *Gate) used(c Config, now time.Time) int {
	left := slices.IndexFunc(g.counted, func(at time.Time) bool { return now.Before(at.Add(c.Window)) })
	if left < 0 {
		left = len(g.counted)
	}
	if g.counted = g.counted[left:]; c.UntilEnd {
		return g.inFlight + len(g.counted)
	}
	return len(g.counted)
}

// count adds a POST to the window. POSTs leave the window in order, so no POST leaves it before an earlier one.
func (g *Gate) count(at time.Time) {
	if n := len(g.counted); n > 0 && g.counted[n-1].After(at) {
		at = g.counted[n-1]
	}
	g.counted = append(g.counted, at)
}

// Permit belongs to one POST, from its start to its end.
type Permit struct{ turn int } // of the breaker

// Begin starts a POST. [Gate.Next] must just have returned the zero Wait.
func (g *Gate) Begin(c Config, now time.Time) Permit {
	turn := g.breaker.Begin()
	if g.inFlight++; c.Limit > 0 && !c.UntilEnd {
		g.count(now)
	}
	return Permit{turn}
}

// Outcome is the information that a POST gives about its receiver.
type Outcome int

// The outcomes.
const (
	NotMade Outcome = iota // there was no POST
	Success
	Failure
	Unclear // the receiver may work or not
)

// Change is a change of the breaker that operators should know about.
type Change int

// The changes.
const (
	Unchanged Change = iota
	Opened
	Closed
)

// End ends a POST. c must be the configuration with which it began.
func (g *Gate) End(c Config, p Permit, o Outcome, now time.Time) Change {
	was := g.breaker.Current()
	if g.inFlight--; c.Limit > 0 && c.UntilEnd && o != NotMade {
		g.count(now)
	}
	switch o {
	case Success, Failure:
		g.breaker.Outcome(c.Breaker, p.turn, o == Success, now)
	case NotMade, Unclear:
		g.breaker.Withdraw(p.turn)
	}
	switch is := g.breaker.Current(); {
	case was == breaker.Closed && is == breaker.Open:
		return Opened
	case was != breaker.Closed && is == breaker.Closed:
		return Closed
	}
	return Unchanged
}

// Hold prevents POSTs until a time, because the receiver asked for that.
func (g *Gate) Hold(until time.Time) {
	if until.After(g.hold) {
		g.hold = until
	}
}

// Configured ends a hold and lets an open breaker probe, because the receiver was configured again.
func (g *Gate) Configured() {
	g.hold = time.Time{}
	g.breaker.Probe()
}

// Reset closes the breaker and discards its history.
func (g *Gate) Reset() { g.breaker.Reset() }

// State is the state of a gate for operators.
type State struct {
	Breaker        breaker.State
	Used, InFlight int // POSTs in the window, and in progress
}

// State returns the state. A breaker that may probe is reported as half-open.
func (g *Gate) State(c Config, now time.Time) State {
	s := State{Breaker: g.breaker.Current(), InFlight: g.inFlight}
	if _, open := g.breaker.Blocked(now); s.Breaker == breaker.Open && !open {
		s.Breaker = breaker.HalfOpen
	}
	if c.Limit > 0 {
		s.Used = g.used(c, now)
	}
	return s
}

// Posts are POSTs that started to count at nearly the same time. They have an age instead of a time, because the clocks of two processes differ and
// may be set.
type Posts struct {
	Age   time.Duration `json:"age"`
	Count int           `json:"count"`
}

const (
	// maxSaved limits the elements of a saved window, which must fit into one message.
	maxSaved = 1000
	// MaxLimit is the maximum Limit of a window.
	MaxLimit = 1_000_000
)

// Window returns the POSTs that may still count, for the next process that makes POSTs to the receiver. If it merges several, it uses the age of the
// last one, so that none leaves the window too early.
func (g *Gate) Window(now time.Time) (saved []Posts) {
	for some := range slices.Chunk(g.counted, max(1, (len(g.counted)+maxSaved-1)/maxSaved)) {
		saved = append(saved, Posts{Age: now.Sub(some[len(some)-1]).Truncate(time.Millisecond), Count: len(some)})
	}
	return saved
}

// SetWindow replaces the counted POSTs by those of the previous process, which may be forged. So at most [MaxLimit] count, and each counts as started
// at most ahead from now.
func (g *Gate) SetWindow(saved []Posts, ahead time.Duration, now time.Time) {
	g.counted = nil
	for _, p := range saved {
		for range min(p.Count, MaxLimit-len(g.counted)) {
			g.count(now.Add(-max(p.Age, -ahead)))
		}
	}
}
