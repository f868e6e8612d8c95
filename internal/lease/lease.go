// Package lease is a right that ends by itself, also while the machine sleeps.
package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// Moment is a time by two clocks of this process. The monotonic clock stops while the machine sleeps, and the wall clock can be set.
type Moment struct{ Mono, Wall time.Duration }

var started = time.Now()

// Now returns the present moment.
func Now() Moment {
	now := time.Now()
	return Moment{now.Sub(started), time.Duration(now.UnixNano())}
}

// Since is how much time can have passed since another moment. A right of this process ends by that. A process waits for others by the monotonic
// clock, which is never ahead.
func (m Moment) Since(before Moment) time.Duration {
	return max(m.Mono-before.Mono, m.Wall-before.Wall)
}

// Lease is a right that lasts for 9/10 of a TTL after a request was sent, if its answer says that the right is stored. Others take it after the TTL.
// The lease is a context that ends with it, and does not begin again. It may be used by several goroutines.
type Lease struct {
	context.Context
	End context.CancelCauseFunc // ends it early

	sent  atomic.Pointer[Moment]
	clock func() Moment
	ttl   time.Duration
	over  error
}

// checks is how often within the TTL the clocks are compared: a timer stops while the machine sleeps, as the monotonic clock does.
const checks = 20

// New returns a lease that begins with the first Extend, and that ends with over as its cause.
func New(parent context.Context, clock func() Moment, ttl time.Duration, over error) *Lease {
	l := &Lease{clock: clock, ttl: ttl, over: over}
	l.Context, l.End = context.WithCancelCause(parent)
	return l
}

// Extend extends the lease. It is called when the request that was sent at a moment is answered.
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

// Valid reports whether the lease has begun and goes on. It is over when this was asked too late.
func (l *Lease) Valid() bool {
	sent := l.sent.Load()
	if sent != nil && l.clock().Since(*sent) >= l.ttl*9/10 {
		l.End(l.over)
	}
	return sent != nil && l.Err() == nil
}
