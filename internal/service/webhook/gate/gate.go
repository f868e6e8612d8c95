// Package gate decides when the next POST to a receiver may begin, and if not now, why and until when. It has no clock, lock or
// goroutine: time is an argument, and the caller synchronizes access to a Gate.
package gate

import (
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
)

// Reason is why no POST may begin.
type Reason string

// The reasons, the first that applies in this order.
const (
	Elsewhere   Reason = "elsewhere"   // another process makes the POSTs, or this one hands over
	Disabled    Reason = "disabled"    // the receiver is gone, and was not configured again
	Paused      Reason = "pause"       // an operator has paused the receiver
	StoreDown   Reason = "store"       // the outcome of a POST could not be stored
	Breaker     Reason = "breaker"     // the receiver has failed too often
	Hold        Reason = "hold"        // the receiver has asked for a pause
	Concurrency Reason = "concurrency" // the most POSTs at a time are in progress
	Rate        Reason = "rate"        // the window of the rate limit is full
)

// Wait is why no POST may begin. The zero Wait says that one may.
type Wait struct {
	For Reason `json:"for"`
	// Until is when the reason ends by itself. Zero means that it does not, or that the time is not known.
	Until time.Time `json:"until,omitzero"`
}

// Config is what the user of a gate knows about the receiver. It may change from call to call.
type Config struct {
	Elsewhere, Disabled, Paused, StoreDown bool

	Breaker     breaker.Rules
	Concurrency int // 0: no limit
	// Limit is the number of POSTs in any Window. 0: no limit.
	Limit  int
	Window time.Duration
	// UntilEnd makes a POST count from its begin until a Window after its end. The receiver sees it at some time in between, so no window
	// at the receiver has more than Limit, whatever the network does. Without it a POST counts for a Window from its begin, and the
	// time that the receiver takes does not lower the rate.
	UntilEnd bool
}

// Gate has the POSTs to one receiver that the next decision depends on. The zero Gate has none.
type Gate struct {
	breaker  breaker.Breaker
	hold     time.Time // when a pause ends that the receiver has asked for
	inFlight int
	counted  []time.Time // since when each POST counts that has begun, or ended with UntilEnd; the oldest first
}

// Next returns whether a POST may begin.
func (g *Gate) Next(c Config, now time.Time) Wait {
	open := g.breaker.Wait(now)
	switch {
	case c.Elsewhere:
		return Wait{For: Elsewhere}
	case c.Disabled:
		return Wait{For: Disabled}
	case c.Paused:
		return Wait{For: Paused}
	case c.StoreDown:
		return Wait{For: StoreDown}
	case open == breaker.Forever:
		return Wait{For: Breaker} // until the end of the probe
	case open > 0:
		return Wait{Breaker, now.Add(open)}
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
		return Wait{For: Rate} // until POSTs in progress have ended
	}
	return Wait{Rate, g.counted[surplus].Add(c.Window)} // after the limit was lowered, several have to leave the window
}

// used counts the POSTs in the window, and removes those that have left it.
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

// count adds a POST to the window. POSTs leave it in their order, so one counts no shorter than those before it.
func (g *Gate) count(at time.Time) {
	if n := len(g.counted); n > 0 && g.counted[n-1].After(at) {
		at = g.counted[n-1]
	}
	g.counted = append(g.counted, at)
}

// Permit is for one POST, from its begin to its end.
type Permit struct{ turn int } // of the breaker

// Begin begins a POST, for which [Gate.Next] has just returned no reason to wait.
func (g *Gate) Begin(c Config, now time.Time) Permit {
	turn, _ := g.breaker.Allow(now)
	if g.inFlight++; c.Limit > 0 && !c.UntilEnd {
		g.count(now)
	}
	return Permit{turn}
}

// Outcome is what a POST says about its receiver.
type Outcome int

// The outcomes.
const (
	NotMade Outcome = iota // there was no POST
	Success
	Failure
	Unclear // the receiver may work or not
)

// Change is a change of the breaker that operators should know of.
type Change int

// The changes.
const (
	Unchanged Change = iota
	Opened
	Closed
)

// End ends a POST. The configuration is the one that it began with.
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

// Hold lets no POST begin until a time, because the receiver has asked for it.
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

// Reset closes the breaker, with an empty history.
func (g *Gate) Reset() { g.breaker.Reset() }

// State is what operators see of a gate.
type State struct {
	Breaker        breaker.State
	Used, InFlight int // POSTs in the window, and in progress
}

// State returns the state. A breaker that may probe is half-open.
func (g *Gate) State(c Config, now time.Time) State {
	s := State{Breaker: g.breaker.Current(), InFlight: g.inFlight}
	if s.Breaker == breaker.Open && g.breaker.Wait(now) == 0 {
		s.Breaker = breaker.HalfOpen
	}
	if c.Limit > 0 {
		s.Used = g.used(c, now)
	}
	return s
}

// Posts are POSTs that count from nearly the same time. They have an age, not a time, because the clocks of two processes differ and
// may be set.
type Posts struct {
	Age   time.Duration `json:"age"`
	Count int           `json:"count"`
}

const (
	// maxSaved bounds the saved POSTs of a window, which must fit into one message.
	maxSaved = 1000
	// MaxLimit is the largest limit of a window.
	MaxLimit = 1_000_000
)

// Window returns the POSTs that may count, for the next process that makes POSTs to the receiver. If it merges several, the last one
// stands for all, so that none leaves the window too early.
func (g *Gate) Window(now time.Time) (saved []Posts) {
	for some := range slices.Chunk(g.counted, max(1, (len(g.counted)+maxSaved-1)/maxSaved)) {
		saved = append(saved, Posts{Age: now.Sub(some[len(some)-1]).Truncate(time.Millisecond), Count: len(some)})
	}
	return saved
}

// SetWindow replaces the POSTs that count by those of the process before, which may be forged: at most [MaxLimit] count, and each counts
// as begun at most ahead from now.
func (g *Gate) SetWindow(saved []Posts, ahead time.Duration, now time.Time) {
	g.counted = nil
	for _, p := range saved {
		for range min(p.Count, MaxLimit-len(g.counted)) {
			g.count(now.Add(-max(p.Age, -ahead)))
		}
	}
}
