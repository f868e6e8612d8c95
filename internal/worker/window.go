package worker

import "time"

const (
	firstWindow = 16
	// sampleMost and sampleTime bound a sample. To read the clock for each message would cost as much as to take one.
	sampleMost = 32
	sampleTime = 5 * time.Millisecond
	// lineTime is approximately the time per message at the highest rate of deliveries with an acknowledgement for each
	// message.
	lineTime = 3 * time.Microsecond
	// workAhead is the minimum time for which an adaptive window keeps the workers busy.
	workAhead = 10 * time.Millisecond
	// MaxBytes bounds the bytes that an adaptive window holds and has on order.
	MaxBytes = 64 << 20
)

// window is the number of messages that may be held or on order. An adaptive window is enough for workAhead at the
// measured rate, and doubles when a worker had to wait although messages kept arriving. It is bounded so that the
// last message of a full window waits for at most a quarter of AckWait. The queue's lock guards it.
type window struct {
	fixed    int // by Prefetch; 0: adaptive
	workers  int
	bound    int           // by MaxAckPending, or by the messages that may be on order
	waitMost time.Duration // a quarter of AckWait; 0: messages may wait for ever
	bytes    int           // 0: no bound

	size   int
	taken  bool          // a message was taken since a worker last waited
	each   time.Duration // smoothed time that a worker spends on a message
	sample int           // number of messages whose time is measured together
}

// restart resets the window to a small one.
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

// fit keeps the size within its bounds. The least size is one message for each worker and one more.
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

// lasting returns how many messages the workers handle in d.
func (w *window) lasting(d time.Duration) int {
	return int(min(float64(w.bound), float64(d)/float64(max(w.each, 1))*float64(w.workers)))
}

// WindowMost returns the maximum size of a window. It is below the consumer's MaxAckPending, because a server that has
// reached that limit delivers one message for each acknowledgement, not several at once. On a slow link
// acknowledgements take long, so the window needs all of MaxAckPending, and most is the bound.
func WindowMost(maxAckPending, most int, trip time.Duration) int {
	bound := maxAckPending * 2 / 3
	if bound <= 0 || trip > time.Duration(bound)*lineTime {
		return most
	}
	return min(bound, most)
}

// OnOrder returns how many messages may be on order: MaxAckPending, because no more can be outstanding. On a slow link it is
// twice that, so that a pull is at the server when acknowledgements arrive. It is at least 256, so that many calls can wait.
func OnOrder(maxAckPending, most int, trip time.Duration) int {
	n := min(maxAckPending, most)
	if n <= 0 {
		return most
	}
	return min(most, max(256, n, WindowMost(n, 2*n, trip)))
}
