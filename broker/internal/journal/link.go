package journal

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// outageGrace is how long the connection may be down before waiting callers get an error. A server that restarts, or another one
// of its cluster, is usually back by then.
const outageGrace = time.Second

// Link tracks since when the connection is down. Nothing may be published during an outage: nats.go would buffer it and send it
// later, when nobody waits for the answer.
type Link struct {
	nc      *nats.Conn
	current atomic.Pointer[outage] // nil while connected
	count   atomic.Uint64          // of outages so far
}

// outage is a time without a connection.
type outage struct {
	since time.Time
	over  chan struct{}
}

// WatchLink returns a Link, and a function that follows the connection's state until its context ends.
func WatchLink(nc *nats.Conn) (l *Link, watch func(run context.Context)) {
	l = &Link{nc: nc}
	changes := nc.StatusChanged()
	l.look()
	return l, func(run context.Context) {
		defer nc.RemoveStatusListener(changes)
		for {
			select {
			case status := <-changes:
				if status != nats.CONNECTED {
					l.count.Add(1)
				}
				l.look()
			case <-run.Done():
				return
			}
		}
	}
}

// Outages returns how often the connection was lost.
func (l *Link) Outages() uint64 { return l.count.Load() }

// Down returns an error with the start of the current outage, or nil.
func (l *Link) Down() error {
	if o := l.current.Load(); o != nil {
		return fmt.Errorf("%w: not connected to NATS since %s", domain.ErrUnavailable, o.since.Format(time.TimeOnly))
	}
	return nil
}

// look records the current state of the connection. The state may have changed again since the event that caused the call; then
// another event follows.
func (l *Link) look() {
	o := l.current.Load()
	switch connected := l.nc.IsConnected(); {
	case connected && o != nil:
		l.current.Store(nil)
		close(o.over)
	case !connected && o == nil:
		l.current.Store(&outage{since: time.Now(), over: make(chan struct{})})
	}
}

// Await waits for a connection. It gives up after the connection was down for outageGrace.
func (l *Link) Await(ctx context.Context) error {
	if o := l.current.Load(); o != nil {
		return o.wait(ctx, nil, o.since.Add(outageGrace))
	}
	return nil
}

// wait waits for the end of the outage. It returns an error if the outage lasts longer than until the given time.
func (o *outage) wait(ctx context.Context, stop <-chan struct{}, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-o.over:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: not connected to NATS for %s", domain.ErrUnavailable, time.Since(o.since).Round(time.Millisecond))
	case <-stop:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
