// Package lease implements a right that ends by itself, even while the machine sleeps.
package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// Moment is a time on two clocks of this process. The monotonic clock stops while the machine sleeps. The wall clock can be set.
type Moment struct{ Mono, Wall time.Duration }

var started = time.Now()

// Now returns the current moment.
func Now() Moment {
	now := time.Now()
	return Moment{now.Sub(started), time.Duration(now.UnixNano())}
}

// Since returns the maximum time that can have passed since another moment, for the end of a right of this process. To wait for others, a process
// uses the monotonic clock, which is never ahead.
func (m Moment) Since(before Moment) time.Duration {
	return max(m.Mono-before.Mono, m.Wall-before.Wall)
}

// Lease is a right that lasts for 9/10 of a TTL from when a request is sent, if the answer confirms that the right is stored. Others take the right
// after the TTL. The lease is a context that ends with it, and does not start again. Lease is safe for concurrent use.
type Lease struct {
	context.Context
	End context.CancelCauseFunc // ends the lease early

	sent  atomic.Pointer[Moment]
	clock func() Moment
	ttl   time.Duration
	over  error
}

// checks is how often per TTL the clocks are compared, because timers and the monotonic clock stop while the machine sleeps.
const checks = 20

// New returns a lease that starts with the first Extend, and ends with the cause over.
func New(parent context.Context, clock func() Moment, ttl time.Duration, over error) *Lease {
	l := &Lease{clock: clock, ttl: ttl, over: over}
	l.Context, l.End = context.WithCancelCause(parent)
	return l
}

// Extend extends the lease. It must be called when a request is answered. sent is when the request was sent.
func (l *Lease) Extend(sent Moment) {
	if l.sent.Swap(&sent) == nil {
		l.watch()
	}
}

func (l *Lease) watch() {
	if l.Valid() {
		time.AfterFunc(min(l.ttl/checks, time.Second), l.watch)
	}
}

// Valid reports whether the lease has started and not ended. It ends a lease whose time is over.
func (l *Lease) Valid() bool {
	sent := l.sent.Load()
	if sent != nil && l.clock().Since(*sent) >= l.ttl*9/10 {
		l.End(l.over)
	}
	return sent != nil && l.Err() == nil
}
