package journal

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

const (
	// outageGrace is how long a caller waits during an outage before it gets an error. A server that restarts, or another server of its cluster, is
	// usually available by then.
	outageGrace = time.Second
	// linkPause is the interval at which a caller checks for a connection.
	linkPause = 10 * time.Millisecond
)

// Link tracks since when the connection is down. Nothing may be published during an outage, because nats.go would buffer it and send it later, when
// nobody waits for the answer.
type Link struct {
	nc    *nats.Conn
	since atomic.Pointer[time.Time] // start of the outage; nil while connected
	count atomic.Uint64             // of outages so far
}

// WatchLink returns a Link, and a function that follows the connection's state until run ends.
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

// look records the current state of the connection. If the state has changed again since the event that caused the call, another event follows.
func (l *Link) look() {
	now := time.Now()
	if l.nc.IsConnected() {
		l.since.Store(nil)
	} else {
		l.since.CompareAndSwap(nil, &now)
	}
}

// Outages returns how often the connection was lost.
func (l *Link) Outages() uint64 { return l.count.Load() }

// Down returns an error with the start of the current outage. It returns nil while connected.
func (l *Link) Down() error {
	if since := l.since.Load(); since != nil {
		return fmt.Errorf("%w: not connected to NATS since %s", domain.ErrUnavailable, since.Format(time.TimeOnly))
	}
	return nil
}

// Await waits for a connection. It gives up when the connection has been down for outageGrace.
func (l *Link) Await(ctx context.Context) error {
	return l.wait(ctx, nil, time.Now().Add(outageGrace), true)
}

// wait waits for a connection until a time. With failFast, it waits at most until outageGrace after the start of the outage.
func (l *Link) wait(ctx context.Context, stop <-chan struct{}, until time.Time, failFast bool) error {
	for since := l.since.Load(); since != nil; since = l.since.Load() {
		if now := time.Now(); !now.Before(until) || failFast && !now.Before(since.Add(outageGrace)) {
			return fmt.Errorf("%w: not connected to NATS for %s", domain.ErrUnavailable, now.Sub(*since).Round(time.Millisecond))
		}
		select {
		case <-time.After(linkPause):
		case <-stop:
			return errStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
