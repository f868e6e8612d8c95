package jetpull

import (
	"sync"
	"time"
)

const (
	firstWindow = 16
	// lineTime is about what a message takes at the highest rate that a server
	// delivers at when each is acknowledged.
	lineTime = 3 * time.Microsecond
	// workAhead is for how long an adaptive window keeps the workers busy, at least
	// and beyond two round trips.
	workAhead = 10 * time.Millisecond
)

// window is how many messages Messages and Consume may hold. An adaptive one
// is enough for workAhead at the measured rate, doubles whenever a worker had to
// wait while messages kept coming, and is bounded so that the last message of a full window waits for a quarter of
// AckWait at the rate at which messages were handled lately.
type window struct {
	fixed   bool
	workers int
	bound   int           // by MaxAckPending; 0: none
	patient time.Duration // a quarter of AckWait; 0: messages may wait for ever
	bytes   int           // about how many it may hold
	ahead   time.Duration // that it is to keep the workers busy for

	mu      sync.Mutex
	size    int
	each    time.Duration // smoothed time that a worker spends on a message
	payload int           // smoothed size of a message
}

func newWindow(fixed, workers, bound int, ackWait time.Duration) *window {
	w := &window{fixed: fixed > 0, workers: workers, size: fixed, bound: bound, patient: ackWait / 4, bytes: windowBytes, ahead: workAhead}
	if fixed == 0 {
		w.size = min(maxPrefetch, max(firstWindow, 2*workers))
	}
	return w
}

// starved grows the window.
func (w *window) starved() (size int) { return w.change(func() { w.size *= 2 }) }

// measured takes in that a worker handled n messages in d, of which one had
// the given size.
func (w *window) measured(n int, d time.Duration, size int) int {
	return w.change(func() {
		each := d / time.Duration(n)
		if w.each == 0 {
			w.each, w.payload = each, size
		}
		w.each += (each - w.each) / 4
		w.payload += (size - w.payload) / 4
		w.size = max(w.size, w.lasting(w.ahead))
	})
}

// refit fits the size to bounds that have changed.
func (w *window) refit() int { return w.change(func() {}) }

func (w *window) change(f func()) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fixed {
		return w.size
	}
	f()
	w.size = max(w.least(), min(w.size, w.most()))
	return w.size
}

// least keeps all workers busy and one message at hand for each.
func (w *window) least() int { return min(maxPrefetch, w.workers+1) }

func (w *window) most() int {
	most := maxPrefetch
	if w.bound > 0 {
		most = w.bound
	}
	if w.payload > 0 {
		most = min(most, w.bytes/w.payload)
	}
	if w.patient > 0 && w.each > 0 {
		most = min(most, w.lasting(w.patient))
	}
	return most
}

// lasting is how many messages the workers handle in d.
func (w *window) lasting(d time.Duration) int {
	return int(min(maxPrefetch, float64(d)/float64(max(w.each, 1))*float64(w.workers)))
}

// windowBound is the bound of a window by MaxAckPending. Where acknowledgements
// cover runs there is none: each lets the server deliver a run.
func (s *Subscription) windowBound(runs bool) int {
	if s.ackNone.Load() || runs {
		return 0
	}
	return windowBound(s.config().MaxAckPending, s.trip)
}

// windowBound keeps a window under the consumer's MaxAckPending: a server that
// meets it delivers message by message, each time one is acknowledged, and not in
// runs. On a link so slow that acknowledgements are long under way all of
// MaxAckPending is needed to use it, and nothing is bounded.
func windowBound(maxAckPending int, trip time.Duration) int {
	bound := maxAckPending * 2 / 3
	if bound <= 0 || trip > time.Duration(bound)*lineTime {
		return 0
	}
	return bound
}
