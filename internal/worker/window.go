package worker

import "time"

const (
	firstWindow = 16
	// sampleMost and sampleTime bound a sample: reading the clock for each message costs as much as taking one.
	sampleMost = 32
	sampleTime = 5 * time.Millisecond
	// lineTime is about the time of one message at the highest rate at which a server delivers when each message is
	// acknowledged.
	lineTime = 3 * time.Microsecond
	// workAhead is how long an adaptive window keeps the workers busy, at least.
	workAhead = 10 * time.Millisecond
	// MaxBytes bounds the bytes that an adaptive window holds and has on order.
	MaxBytes = 64 << 20
)

// window is how many messages may be held or on order. An adaptive one is enough for workAhead at the measured
// rate, doubles whenever a worker had to wait although messages kept coming, and is bounded so that the last
// message of a full window waits for a quarter of AckWait. The queue's lock guards it.
type window struct {
	fixed    int // by Prefetch; 0: it is adaptive
	workers  int
	bound    int           // by MaxAckPending, or what may be on order
	waitMost time.Duration // a quarter of AckWait; 0: messages may wait for ever
	bytes    int           // 0: no bound

	size   int
	taken  bool          // a message was taken since a worker last waited
	each   time.Duration // smoothed time that a worker spends on a message
	sample int           // of how many messages the time is measured together
}

// restart begins with a small window.
func (w *window) restart() {
	w.size = max(firstWindow, 2*w.workers)
	w.fit()
}

// starved doubles the window when a worker has to wait again.
func (w *window) starved() {
	if w.taken {
		w.size *= 2
		w.fit()
	}
	w.taken = false
}

// measured records that a worker handled n messages in d.
func (w *window) measured(n int, d time.Duration) {
	each := max(d/time.Duration(n), 1)
	if w.each == 0 {
		w.each = each
	}
	w.each += (each - w.each) / 4
	w.sample = int(min(sampleMost, sampleTime/w.each))
	w.size = max(w.size, w.lasting(workAhead))
	w.fit()
}

// fit keeps the size within its bounds: at least all workers are busy and one message is at hand for each.
func (w *window) fit() {
	if w.fixed > 0 {
		w.size = w.fixed
		return
	}
	most := w.bound
	if w.waitMost > 0 && w.each > 0 {
		most = min(most, w.lasting(w.waitMost))
	}
	w.size = max(w.workers+1, min(w.size, most))
}

// lasting is how many messages the workers handle in d.
func (w *window) lasting(d time.Duration) int {
	return int(min(float64(w.bound), float64(d)/float64(max(w.each, 1))*float64(w.workers)))
}

// WindowMost is the most messages that a window may have. It is below the consumer's MaxAckPending: a server that has
// reached that limit delivers one message for each acknowledgement, and not several at once. On a slow link
// acknowledgements take long, so the window needs all of MaxAckPending, and most is the bound.
func WindowMost(maxAckPending, most int, trip time.Duration) int {
	bound := maxAckPending * 2 / 3
	if bound <= 0 || trip > time.Duration(bound)*lineTime {
		return most
	}
	return min(bound, most)
}

// OnOrder is how many messages may be on order: at most MaxAckPending can be outstanding. On a slow link as many again are on
// order, so that a pull is at the server when acknowledgements arrive. With a small MaxAckPending many calls can still wait.
func OnOrder(maxAckPending, most int, trip time.Duration) int {
	n := min(maxAckPending, most)
	if n <= 0 {
		return most
	}
	return min(most, max(256, n, WindowMost(n, 2*n, trip)))
}
