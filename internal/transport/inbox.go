package transport

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/pull"
)

const (
	// statusSlots is the number of slots in the channel that are reserved for statuses, and for frames of inboxes that drain.
	statusSlots = 32

	// flushMost is how long a PING waits for its PONG.
	flushMost = 10 * time.Second
)

// MaxOnOrder is the maximum number of messages that a window may have on order.
const MaxOnOrder = 1792

// slots returns the capacity of the channel into which all inboxes deliver: a full window, an eighth of it for calls while it is
// full, and statuses. nats.go drops a message if the channel is full, and the scheduler can delay the reader for any time, so the
// channel holds all messages that may be on order.
func slots(onOrder int) int { return onOrder + onOrder/8 + statusSlots }

// inboxes are the subscriptions of the engine's inboxes. The driver's lock guards them.
type inboxes struct {
	known   map[*nats.Subscription]*pull.Inbox
	lastSub *nats.Subscription // the subscription of the last frame; last is its inbox
	last    *pull.Inbox
	drained []*pull.Inbox
}

// of returns the inbox of a subscription, or an empty inbox if it was dropped.
func (b *inboxes) of(sub *nats.Subscription) *pull.Inbox {
	if sub != b.lastSub {
		if b.lastSub, b.last = sub, b.known[sub]; b.last == nil {
			b.last = &pull.Inbox{}
		}
	}
	return b.last
}

func (b *inboxes) forget(ib *pull.Inbox) {
	if sub, ok := ib.Ref.(*nats.Subscription); ok {
		delete(b.known, sub)
	}
	b.lastSub, b.last = nil, nil
}

// Inboxes is the result of CheckInboxes.
type Inboxes struct {
	base string // prefix of the subjects of all inboxes
	// Trip is the round trip to the server.
	Trip time.Duration
}

// CheckInboxes subscribes to an inbox, and waits until the server has accepted that. So a missing permission shows here, and not as a timeout.
func CheckInboxes(ctx context.Context, nc *nats.Conn) (*Inboxes, error) {
	f, before := &Inboxes{base: nc.NewInbox()}, nc.LastError()
	sub, err := nc.ChanSubscribe(f.base+".0.*", make(chan *nats.Msg, 1))
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	f.Trip, err = Accepted(ctx, nc, before, sub.Subject)
	return f, err
}

// Accepted waits until the server has received what was sent, and returns the duration of the round trip. It returns the server's refusal of
// a publish or subscription to one of the subjects, as Refusal does.
func Accepted(ctx context.Context, nc *nats.Conn, before error, subjects ...string) (trip time.Duration, err error) {
	// The error also means that the connection was lost.
	for err = nats.ErrConnectionClosed; errors.Is(err, nats.ErrConnectionClosed) && !nc.IsClosed(); {
		sent := time.Now()
		err = nc.FlushWithContext(ctx)
		trip = time.Since(sent)
	}
	if err == nil {
		err = Refusal(nc, before, subjects...)
	}
	return trip, err
}

// subscribe reports false if the connection is closed.
func (d *Driver) subscribe(ib *pull.Inbox) bool {
	sub, err := d.nc.ChanSubscribe(ib.Subject, d.in)
	if err != nil {
		return false
	}
	d.mu.Lock()
	ib.Ref = sub
	d.boxes.known[sub] = ib
	d.mu.Unlock()
	return true
}

func (d *Driver) unsubscribe(ib *pull.Inbox) {
	if sub, ok := ib.Ref.(*nats.Subscription); ok {
		_ = sub.Unsubscribe() // it fails on a closed connection, where nothing is subscribed
	}
	d.mu.Lock()
	d.boxes.forget(ib)
	d.mu.Unlock()
}

// drain unsubscribes ib. A round trip later, it reports that all frames in flight have arrived.
func (d *Driver) drain(ib *pull.Inbox) {
	sub, _ := ib.Ref.(*nats.Subscription)
	if sub == nil || sub.Drain() != nil {
		d.wasDrained(ib)
		return
	}
	started := d.group.Go(func(ctx context.Context) {
		if !d.roundTrip(ctx) {
			// The connection is lost, so nothing more can arrive. The inbox must be dropped before the next connection:
			// nats.go subscribes a draining subscription again, and then forgets it without an UNSUB.
			_ = sub.Unsubscribe()
		}
		d.wasDrained(ib)
	})
	if !started {
		d.wasDrained(ib)
	}
}

// roundTrip waits until the server has answered a PING. It reports false if the connection is lost or the driver ends first.
func (d *Driver) roundTrip(ctx context.Context) bool {
	for ctx.Err() == nil && d.nc.IsConnected() {
		once, cancel := context.WithTimeout(ctx, flushMost)
		err := d.nc.FlushWithContext(once)
		cancel()
		if err == nil || d.Over.Err() != nil {
			return err == nil
		}
	}
	return false
}

// wasDrained passes the inbox to the reader, which first takes the frames that have arrived.
func (d *Driver) wasDrained(ib *pull.Inbox) {
	d.mu.Lock()
	d.boxes.drained = append(d.boxes.drained, ib)
	d.ensureReaderLocked()
	d.nudgeLocked()
	d.mu.Unlock()
}
