// Package watch periodically checks for a problem and stores the last result. It also waits for a time or the end of a context.
package watch

import (
	"context"
	"sync/atomic"
	"time"
)

// Condition is a problem that lasts until a check finds that it has ended. The zero Condition has none. It is safe for concurrent use.
type Condition struct {
	problem atomic.Pointer[error]
}

// Err returns the problem, or nil.
func (c *Condition) Err() error {
	if p := c.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// Set stores the result of a check, and reports whether a problem has begun or ended. It must not be called concurrently.
func (c *Condition) Set(err error) (begun, ended bool) {
	was := c.problem.Load() != nil
	if err == nil {
		c.problem.Store(nil)
	} else {
		c.problem.Store(&err)
	}
	return err != nil && !was, err == nil && was
}

// Sleep returns nil after d, or ctx's cause if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Every calls f at once, and then after each pause, until ctx ends.
func Every(ctx context.Context, pause time.Duration, f func()) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
