// Package clock is the clock of a server, as a process knows it. It has no I/O: its owner reads the server's clock.
package clock

import (
	"sync/atomic"
	"time"
)

// Clock is the server's clock. The clock of this process may differ, or be set. The zero Clock is the process's own, until the server's is
// read. It may be used by several goroutines.
type Clock struct{ last atomic.Pointer[reading] }

type reading struct {
	server time.Time
	seen   time.Time // when it was read, by the monotonic clock of this process
}

// Now returns the time by the server's clock. It differs by at most the time that the answer to a reading takes.
func (c *Clock) Now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Now().Round(0).UTC()
	}
	return r.server.Add(time.Since(r.seen))
}

// Set takes the server's time, which was requested at a time of this process. One goroutine at a time may call it.
func (c *Clock) Set(server, requested time.Time) {
	now := time.Now()
	if c.last.Load() != nil {
		// An estimate between the request and the answer is at least as exact, so that a slow answer changes nothing.
		if estimate := c.Now(); !estimate.Before(server) && !estimate.After(server.Add(now.Sub(requested))) {
			server = estimate
		}
	}
	c.last.Store(&reading{server.UTC(), now})
}
