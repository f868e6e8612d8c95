package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/pull"
)

// watch reports changes of the connection to the engine. It reads the state of the connection on each change, because
// nats.go drops changes if a listener is slow. seen is the number of reconnects so far.
func (d *Driver) watch(ctx context.Context, changes chan nats.Status, seen uint64) {
	defer d.nc.RemoveStatusListener(changes)
	for open := true; open; {
		select {
		case <-ctx.Done():
			return
		case _, open = <-changes:
			back := d.nc.Stats().Reconnects // before the status: if it comes back in between, there is another change
			d.connectionIs(d.nc.Status(), back != seen)
			seen = back
		}
	}
}

// connectionIs reports the state of the connection to the engine, and whether it was lost since the last report.
func (d *Driver) connectionIs(s nats.Status, again bool) {
	draining, closed := d.hooks.Closed(nats.ErrConnectionDraining), d.hooks.Closed(nats.ErrConnectionClosed)
	d.Do(func(e *pull.Engine, now pull.At) {
		d.reader.nudge = true
		switch s {
		case nats.CONNECTED:
			if again || e.Down() {
				d.reconnects.Add(1)
				e.Disconnected()
				e.Reconnected(now)
			}
		case nats.DISCONNECTED, nats.RECONNECTING:
			e.Disconnected()
		case nats.DRAINING_SUBS, nats.DRAINING_PUBS:
			d.end(draining)
			e.Fail(now, draining, true)
		case nats.CLOSED:
			d.end(closed)
			e.Fail(now, closed, true)
		}
	})
}

// readMost is how long a reading of the consumer's configuration may take.
const readMost = 2 * time.Second

// readConfig reads the consumer's configuration on a goroutine of the driver's.
func (d *Driver) readConfig() {
	d.group.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, readMost)
		defer cancel()
		d.mu.Lock()
		epoch := d.engine.Epoch()
		d.mu.Unlock()
		lim, gone, err := d.hooks.Read(ctx)
		d.Do(func(e *pull.Engine, now pull.At) {
			d.reader.nudge = true
			if err != nil {
				e.Unreadable(now, gone)
			} else {
				e.Configured(now, lim, epoch)
			}
		})
	})
}

// lookForRefusal ends all demands if pulls stayed unanswered because the server has refused them. The lock is
// held.
func (d *Driver) lookForRefusal(now pull.At) {
	s, _ := d.engine.Stats()
	if s.Silent == d.reader.silent {
		return
	}
	d.reader.silent = s.Silent
	if err := d.refusals.News(d.nc, d.subject); err != nil {
		d.engine.Fail(now, err, false)
	}
}

// Refused returns the server's refusal of the last pull; nil: it did not refuse it.
func (d *Driver) Refused() error { return d.refusals.News(d.nc, d.subject) }

// Refusals distinguish a new refusal of the server from earlier ones. The server sends a refusal on the connection and
// never answers the request, and nats.go keeps returning the last one, long after the permission was given.
type Refusals struct {
	mu  sync.Mutex
	old error // the last refusal before the last request was sent
}

// NewRefusals returns Refusals for which all refusals until now are old.
func NewRefusals(nc *nats.Conn) *Refusals {
	r := &Refusals{}
	r.Mark(nc)
	return r
}

// Mark is called before something is sent.
func (r *Refusals) Mark(nc *nats.Conn) {
	last := violation(nc)
	r.mu.Lock()
	r.old = last
	r.mu.Unlock()
}

// News returns the refusal of the last request on subject, or nil. nats.go makes an error for each refusal,
// so another error is another refusal.
func (r *Refusals) News(nc *nats.Conn, subject string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := violation(nc)
	if last == nil || last == r.old { //nolint:errorlint // which error it is counts, not of what kind
		return nil
	}
	return permissionError(nc, subject)
}

// violation is the connection's last error if that is a refusal.
func violation(nc *nats.Conn) error {
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

// permissionError is the server's refusal of a publish or subscription to subject, if that was the connection's
// last error.
func permissionError(nc *nats.Conn, subject string) error {
	err := violation(nc)
	if err == nil || !strings.Contains(err.Error(), `"`+subject+`"`) {
		return nil
	}
	return fmt.Errorf("jetpull: the user may not use subject %s; allow it in the server's permissions: %w", subject, err)
}

// Request runs f, which sends a request on subject. The server never answers a request that it refuses: then the error is
// the refusal.
func Request(ctx context.Context, nc *nats.Conn, subject string, f func(context.Context) error) error {
	r := NewRefusals(nc)
	err := f(ctx)
	if err != nil {
		if refused := r.News(nc, subject); refused != nil {
			return refused
		}
	}
	return err
}
