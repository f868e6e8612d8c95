package transport

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/wire"
)

const (
	// slots is the capacity of the channel into which all inboxes deliver. statusSlots of it are reserved for statuses and
	// for frames on the wire of drained inboxes. nats.go drops a message if the channel is full, and the scheduler can
	// delay the reader for any time, so the channel holds all messages that may be on order.
	slots       = 2048
	statusSlots = 32

	// flushMost is how long one ping waits for its answer.
	flushMost = 10 * time.Second
)

// MaxOnOrder is the most messages that may be on order at a time.
const MaxOnOrder = slots - 256

// inboxes are the subscriptions of the engine's inboxes. The driver's lock guards them.
type inboxes struct {
	known   map[*nats.Subscription]*pull.Inbox
	lastSub *nats.Subscription // of the last frame, and its inbox
	last    *pull.Inbox
	drained []*pull.Inbox
	quiet   []chan struct{} // closed when no inbox drains
}

func (b *inboxes) of(sub *nats.Subscription) *pull.Inbox {
	if sub != b.lastSub {
		b.lastSub, b.last = sub, b.known[sub]
	}
	return b.last
}

func (b *inboxes) forget(ib *pull.Inbox) {
	if sub, ok := ib.Ref.(*nats.Subscription); ok {
		delete(b.known, sub)
	}
	b.lastSub, b.last = nil, nil
}

// FirstInbox is the first pooled inbox of a subscription.
type FirstInbox struct {
	base string
	in   chan *nats.Msg
	sub  *nats.Subscription
	// Trip is how long the server took to answer.
	Trip time.Duration
}

// OpenInbox subscribes the first pooled inbox and waits until the server has accepted it, so that a missing
// permission shows here and not as a time-out.
func OpenInbox(ctx context.Context, nc *nats.Conn) (*FirstInbox, error) {
	f := &FirstInbox{base: nc.NewInbox(), in: make(chan *nats.Msg, slots)}
	sub, err := nc.ChanSubscribe(f.base+".0.*", f.in)
	if err != nil {
		return nil, err
	}
	f.sub = sub
	sent := time.Now()
	err = nc.FlushWithContext(ctx)
	f.Trip = time.Since(sent)
	if err == nil {
		err = permissionError(nc, sub.Subject)
	}
	if err != nil {
		_ = sub.Unsubscribe()
		return nil, err
	}
	return f, nil
}

// Drop gives up an inbox that no driver was made for.
func (f *FirstInbox) Drop() { _ = f.sub.Unsubscribe() }

func (d *Driver) subscribe(ib *pull.Inbox) (*nats.Subscription, error) {
	sub, err := d.nc.ChanSubscribe(ib.Subject, d.in)
	if err != nil {
		return nil, fmt.Errorf("subscribe to inbox %s: %w", ib.Subject, err)
	}
	d.mu.Lock()
	ib.Ref = sub
	d.boxes.known[sub] = ib
	d.mu.Unlock()
	return sub, nil
}

func (d *Driver) unsubscribe(ib *pull.Inbox) {
	if sub, ok := ib.Ref.(*nats.Subscription); ok {
		_ = sub.Unsubscribe() // it fails on a closed connection, where nothing is subscribed
	}
	d.mu.Lock()
	d.boxes.forget(ib)
	d.mu.Unlock()
}

// drain unsubscribes ib and, a round trip later, reports that all frames on the wire have arrived. After silence it
// first waits for an answer to a ping: the connection may be stalled, and messages that come through later need their
// inbox.
func (d *Driver) drain(ib *pull.Inbox, silent bool) {
	sub, _ := ib.Ref.(*nats.Subscription)
	if sub == nil || !silent && sub.Drain() != nil {
		d.wasDrained(ib)
		return
	}
	started := d.group.Go(func(ctx context.Context) {
		if !d.roundTrip(ctx) || silent && (sub.Drain() != nil || !d.roundTrip(ctx)) {
			// The connection is lost, and nothing is on its wire any more. The inbox must be dropped before the next
			// connection: nats.go subscribes a draining subscription again and then forgets it without an UNSUB.
			_ = sub.Unsubscribe()
		}
		d.wasDrained(ib)
	})
	if !started {
		d.wasDrained(ib)
	}
}

// roundTrip waits until the server has answered a ping. It reports false if it will not: the connection is lost,
// or the driver ends.
func (d *Driver) roundTrip(ctx context.Context) bool {
	for ctx.Err() == nil && d.nc.IsConnected() {
		once, cancel := context.WithTimeout(ctx, flushMost)
		err := d.nc.FlushWithContext(once)
		cancel()
		d.mu.Lock()
		closed := d.engine.Closed()
		d.mu.Unlock()
		if err == nil || closed {
			return err == nil
		}
	}
	return false
}

// wasDrained passes the inbox to the reader, which first takes the frames that have arrived.
func (d *Driver) wasDrained(ib *pull.Inbox) {
	d.mu.Lock()
	d.boxes.drained = append(d.boxes.drained, ib)
	d.ensureReader()
	d.sendNudge()
	d.mu.Unlock()
}

// take passes one frame to the engine. The lock is held.
func (d *Driver) take(now pull.At, raw *nats.Msg) {
	if raw == nudgeFrame {
		return
	}
	ib := d.boxes.of(raw.Sub)
	if raw.Reply == "" && ib != nil && strings.HasPrefix(raw.Subject, ib.Prefix) {
		if s, ok := wire.ParseStatus(raw.Header); ok {
			d.engine.Status(now, ib, raw.Subject[strings.LastIndexByte(raw.Subject, '.')+1:], s)
		}
		return
	}
	size, pin := raw.Size(), ""
	if d.engine.PinnedPolicy() && len(raw.Header) > 0 {
		if pin = wire.PinID(raw.Header); pin != "" {
			// The server adds the pin id, and a header for it, after it has counted.
			size -= len(wire.HeaderPinID) + len(": ") + len(pin) + len("\r\n")
			if len(raw.Header) == 1 {
				size -= len("NATS/1.0\r\n\r\n")
			}
		}
	}
	if ib == nil {
		d.engine.Stray(d.hooks.Wrap(raw, size, nil))
		return
	}
	d.engine.Message(now, ib, d.hooks.Wrap(raw, size, ib.Terms()), size, pin)
}
