package pull

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// standing is the state of a demand that keeps a window on order.
type standing struct {
	// The caller's window, and the messages that it holds.
	window    int // messages that may be held or on order
	held      int // delivered, and not credited by the caller
	heldBytes int
	starving  bool // a worker waits
	serial    uint64

	// Traffic.
	lastPull At
	pace     pace
	pending  int  // messages pending at the consumer when it delivered the last one
	notified bool // delivered messages are about to be handed over
	// oversize is set if the next message is larger than a pull may ask for: it is pulled alone.
	oversize bool
	// quiet is set if the last pull has expired with at least half of its batch unused. Then the other open pulls are enough, and
	// the next one is sent when they may bring only a few messages.
	quiet bool

	// After trouble, the next pull is a probe: it is short-lived and has no heartbeat, so that the server refuses it with
	// a reason such as MaxWaiting. A pull with a heartbeat would be dropped without an answer.
	probing      bool
	silentProbes int // silent probes in a row
	retryAt      At  // no probe before this
}

// news is the effect of a pull's end on the caller of a standing demand.
type news struct {
	end     error // the demand cannot be served
	trouble error // a pull failed
	healthy bool  // pulls are answered, again if trouble was reported
}

// troubled reports whether the next message changes more than accounts: see Engine.steady.
func (s *standing) troubled() bool {
	return s.probing || s.quiet || s.starving
}

// heal records that the server answers pulls, so that the next one is no probe. It reports whether there was trouble before.
func (s *standing) heal() (before bool) {
	before = s.probing
	s.probing, s.silentProbes, s.retryAt = false, 0, 0
	return before
}

// pullEnded updates s when its pull p has ended. The first probe after silence goes out at once, and the next ones after a back-off that
// doubles up to 5 s. Several pulls that were dropped together count as one.
func (s *standing) pullEnded(now At, p *pull, o *ending, rng *rand.Rand) (n news) {
	st := o.status
	s.quiet = st.Condition == wire.Expired && p.got <= p.req.Batch/2 && !p.probe()
	switch class := st.Condition.Class(); {
	case o.silent:
		if p.probe() {
			s.retryAt = now + backOff(s.silentProbes, silentBackOff, rng)
			s.silentProbes++
		}
		n.trouble = ErrSilent
	case o.lost && s.probing: // reported when the connection was lost
	case o.lost:
		n.trouble = ErrLost
	case st.Condition == wire.MaxBytes: // the next message is larger than the bytes that p asked for
		n.healthy = true
		switch {
		case p.got > 0, p.refresh:
		case p.alone:
			n.end = &Refused{st} // it does not fit the user's limit and never will
		default:
			s.oversize = true
		}
	case class == wire.Retry, st.Condition == wire.LimitExceeded:
		n.trouble = &Refused{st}
	case class == wire.Config, class == wire.Terminal:
		n.end = &Refused{st}
	default:
		n.healthy = true
	}
	return n
}

// leastFar is the number of messages that a standing demand may always have on order behind a slow link.
const leastFar = 16

// pace counts the messages that arrive in a round trip to the consumer's server.
type pace struct {
	since     At
	n, before int // messages of the demand at since; messages that arrived in the round trip before
}

// note starts another count after each round trip. n is the number of messages that have arrived so far.
func (p *pace) note(now At, n int, trip time.Duration) {
	if took := now - p.since; trip > farTrip && took >= trip {
		p.before = int(float64(n-p.n) * float64(trip) / float64(took))
		p.since, p.n = now, n
	}
}

// onOrderMost bounds the messages on order if the consumer's server is far: as many as arrive in fillMost or in two
// round trips, or wait at the server. So the pulls of a demand that ends are filled soon. This matters because no request ends a pull, and
// messages that the server sends before it gets the UNSUB are lost.
func (d *Demand) onOrderMost(trip time.Duration) int {
	if trip <= farTrip {
		return math.MaxInt
	}
	s := d.stand
	return max(leastFar, 2*d.Workers, s.pending, max(s.pace.before, d.n-s.pace.n)*int(max(2, fillMost/trip)))
}

// Credit says that N messages, of Bytes together, are no longer held. Pending is the number of messages pending at the consumer when it
// delivered the last one. Window is how many messages may be held or on order, and Starving reports whether a worker waits. If two Credits
// overtake each other, these two are taken from the one with the higher Serial.
type Credit struct {
	N, Bytes, Window int
	Pending          int
	Starving         bool
	Serial           uint64
}

// credit returns messages to the window.
func (s *standing) credit(c Credit) {
	s.held -= c.N
	s.heldBytes -= c.Bytes
	s.pending = c.Pending
	if c.Serial >= s.serial {
		s.window, s.starving, s.serial = c.Window, c.Starving, c.Serial
	}
}
