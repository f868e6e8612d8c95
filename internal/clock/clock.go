// Package clock estimates the clock of a server. It has no I/O: its user reads the server's clock.
package clock

import (
	"sync/atomic"
	"time"
)

// Clock is the server's clock. The clock of this process may differ, or be set. The zero Clock is the process's own clock until the server's clock is
// read. Clock is safe for concurrent use.
type Clock struct{ last atomic.Pointer[reading] }

type reading struct {
	server time.Time
	seen   time.Time // when it was read, with a monotonic clock reading of this process
}

// Now returns the time of the server's clock. Its error is at most the round-trip time of the reading.
func (c *Clock) Now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Now().Round(0).UTC()
	}
	return r.server.Add(time.Since(r.seen))
}

// Set sets the server's time. requested is when this process requested it. Set must not be called concurrently.
func (c *Clock) Set(server, requested time.Time) {
	now := time.Now()
	if c.last.Load() != nil {
		// Keep an estimate between the request and the answer: it is at least as exact, so that a slow answer changes nothing.
		if estimate := c.Now(); !estimate.Before(server) && !estimate.After(server.Add(now.Sub(requested))) {
			server = estimate
		}
	}
	c.last.Store(&reading{server.UTC(), now})
}
