package jetpull

import "github.com/nats-io/nats.go"

// nudge lets the reader look at its timer, at what has been drained, and
// whether its own claim was ended by another goroutine: the rules do not wake a
// claim whose caller reads. It comes as a frame like any other, so that the
// reader waits on one channel, and is sent without the lock: who holds it sets
// toNudge and gives it back by act or unlock.
func (e *engine) nudge() {
	if e.nudged.Swap(true) {
		return
	}
	select {
	case e.in <- nudgeFrame:
	default:
		// The reader has frames to take, and looks for nudges after those.
	}
}

// unlock gives the lock back and sends the nudge that was asked for under it.
func (e *engine) unlock() {
	nudge := e.toNudge
	e.toNudge = false
	e.mu.Unlock()
	if nudge {
		e.nudge()
	}
}

// nudgeFrame is what a nudge sends. It has no meaning but to wake.
var nudgeFrame = &nats.Msg{}
