package journal

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// outageGrace is how long the connection may be down before those who wait for
// it are told. A server that restarts, or another of its cluster, is mostly back
// by then.
const outageGrace = time.Second

// Link knows since when the connection is down. Nothing is to be sent while it
// is: nats.go would keep it and send it later, when nobody waits for it any more.
type Link struct {
	nc      *nats.Conn
	current atomic.Pointer[outage] // nil while connected
	count   atomic.Uint64          // how often it was not
}

// outage is a time without a connection.
type outage struct {
	since time.Time
	over  chan struct{}
}

// WatchLink follows the state of a connection until watch ends.
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

// Outages is how often there was no connection.
func (l *Link) Outages() uint64 { return l.count.Load() }

// Down says since when there is no connection, or is nil.
func (l *Link) Down() error {
	if o := l.current.Load(); o != nil {
		return fmt.Errorf("%w: not connected to NATS since %s", domain.ErrUnavailable, o.since.Format(time.TimeOnly))
	}
	return nil
}

// look notes how the connection is now. What a change was to may be over already,
// and then there is another.
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

// Await returns when there is a connection. It gives up when there was none for
// outageGrace.
func (l *Link) Await(ctx context.Context) error {
	if o := l.current.Load(); o != nil {
		return o.wait(ctx, nil, o.since.Add(outageGrace))
	}
	return nil
}

// wait returns when the outage is over, or with an error when it is not by a
// given time.
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
