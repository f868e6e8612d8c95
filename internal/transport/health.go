package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/wire"
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
			back := d.nc.Stats().Reconnects // before the status: a reconnect in between causes another change
			d.connectionIs(d.nc.Status(), back != seen)
			seen = back
		}
	}
}

// connectionIs reports the state of the connection to the engine, and whether it was lost since the last report.
func (d *Driver) connectionIs(s nats.Status, again bool) {
	d.Do(func(e *pull.Engine, now pull.At) {
		switch s {
		case nats.CONNECTED:
			if again || e.Down() {
				e.Disconnected()
				e.Reconnected(now)
			}
		case nats.DISCONNECTED, nats.RECONNECTING:
			e.Disconnected()
		case nats.DRAINING_SUBS, nats.DRAINING_PUBS:
			d.end(nats.ErrConnectionDraining)
			e.Fail(now, nats.ErrConnectionDraining, true)
		case nats.CLOSED:
			d.end(nats.ErrConnectionClosed)
			e.Fail(now, nats.ErrConnectionClosed, true)
		}
	})
}

// Refusal returns the server's refusal of a publish or subscription to one of the subjects, which may have wildcards, or nil if there was
// none. before is the connection's last error before that. The server sends a refusal on the connection and never answers the request.
// nats.go returns the last refusal even long after the permission was granted. But each refusal has its own error value, so a value other
// than before is a new refusal.
func Refusal(nc *nats.Conn, before error, subjects ...string) error {
	err := nc.LastError()
	if err == before || !errors.Is(err, nats.ErrPermissionViolation) { //nolint:errorlint // which error it is counts, not of what kind
		return nil
	}
	quoted := append(strings.Split(err.Error(), `"`), "")
	for _, subject := range subjects {
		if wire.Matches(subject, quoted[1]) {
			return fmt.Errorf("jetpull: the user may not use subject %s; allow it in the server's permissions: %w", subject, err)
		}
	}
	return nil
}
