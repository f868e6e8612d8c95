// Package lease implements a right that ends by itself, even while the machine sleeps.
package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// Moment is a time by two clocks of this process. The monotonic clock stops while the machine sleeps. The wall clock can be set.
type Moment struct{ Mono, Wall time.Duration }

var started = time.Now()

// Now returns the present moment.
func Now() Moment {
	now := time.Now()
	return Moment{now.Sub(started), time.Duration(now.UnixNano())}
}

// Since returns the longest time that can have passed since before. It ends the rights of this process. To wait for others, a process uses the
// monotonic clock, which never runs ahead.
func (m Moment) Since(before Moment) time.Duration {
	return max(m.Mono-before.Mono, m.Wall-before.Wall)
}

// Lease is a right that lasts for 9/10 of a TTL after a request was sent, provided that its answer confirms the right. Others take it after the TTL.
// A Lease is also a context, which ends with the right. It does not begin again. Several goroutines may use it.
type Lease struct {
	context.Context
	End context.CancelCauseFunc // ends the lease early

	sent  atomic.Pointer[Moment]
	clock func() Moment
	ttl   time.Duration
	over  error
}

// checks is the number of checks of the clocks within the TTL. One timer is not enough: like the monotonic clock, it stops while the machine sleeps.
const checks = 20

// New returns a lease that begins with the first Extend. When it is not extended, it ends with over as its cause.
func New(parent context.Context, clock func() Moment, ttl time.Duration, over error) *Lease {
	l := &Lease{clock: clock, ttl: ttl, over: over}
	l.Context, l.End = context.WithCancelCause(parent)
	return l
}

// Extend extends the lease, after the answer to a request that was sent at sent.
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

// Valid reports whether the lease has begun and has not ended. If it was not extended in time, Valid ends it.
func (l *Lease) Valid() bool {
	sent := l.sent.Load()
	if sent != nil && l.clock().Since(*sent) >= l.ttl*9/10 {
		l.End(l.over)
	}
	return sent != nil && l.Err() == nil
}
