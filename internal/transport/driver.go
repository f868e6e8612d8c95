// Package transport carries out the effects of the pull engine on a nats.Conn, and passes arriving frames to the
// engine. It is the only internal package of the client that holds a connection.
//
// All inboxes deliver into one channel, and one goroutine at a time reads it: the caller at the head, so that a
// message wakes only the goroutine that wants it. When that caller has its messages, it passes the reading on to the
// next caller that waits. If none waits and frames can still arrive, the background reader reads.
//
// The driver's lock is never held over a channel operation that can block, a callback or I/O; DESIGN.md has the
// lock order. Effects are carried out without it, in order, by one goroutine at a time.
package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/lifecycle"
	"github.com/jetpull/jetpull/internal/pull"
)

// Hooks connect the driver with messages and the consumer.
type Hooks struct {
	// Wrap makes a message of a frame. It is called for each message in the order of their arrival, with the driver's lock
	// held.
	Wrap func(raw *nats.Msg, size int) pull.Message
	// Pin reports that the pin id of a group was gained or lost.
	Pin func(group, id string, gained bool)
	// Read reads the consumer's configuration. gone says that it does not exist.
	Read func(ctx context.Context) (lim pull.Limits, gone, err error)
}

// Sink receives the messages and problems of a standing demand, whose Ref it is, in order, from one goroutine at a time and
// without a lock. Deliver must not keep ms.
type Sink interface {
	Deliver(ms []pull.Message, done bool, err error)
	Problem(err error)
	Healthy()
}

// Driver is the I/O around the pull engine of one consumer.
type Driver struct {
	nc      *nats.Conn
	subject string // of pulls
	hooks   Hooks
	epoch   time.Time
	group   *lifecycle.Group
	Over    context.Context // ends when the driver is closed, and when the connection is drained or closed; its cause is the error of calls
	end     context.CancelCauseFunc

	mu      sync.Mutex
	engine  *pull.Engine
	in      chan *nats.Msg
	nudged  bool // a nudge is not yet attended to
	acting  bool // a goroutine carries out effects
	reader  reader
	boxes   inboxes
	quiet   []chan struct{} // closed when no inbox drains, and what came is carried out
	refused error           // the connection's last error before the last pull was sent
	round   func()          // ends the reading of the configuration that is under way, and the pause after it
}

// New returns a driver for a consumer that is pulled from by subject. Its windows may have onOrder messages on order.
func New(nc *nats.Conn, subject string, lim pull.Limits, onOrder int, inboxes *Inboxes, hooks Hooks) *Driver {
	d := &Driver{
		nc: nc, subject: subject, hooks: hooks, epoch: epoch(nc), in: make(chan *nats.Msg, slots(onOrder)),
		group: lifecycle.New(), refused: nc.LastError(), round: func() {},
	}
	d.Over, d.end = context.WithCancelCause(context.Background())
	d.engine = pull.New(inboxes.base, lim, cap(d.in)-statusSlots, rand.Uint64())
	d.reader.timer = time.AfterFunc(time.Hour, func() {
		d.mu.Lock()
		d.sendNudge()
		d.mu.Unlock()
	})
	d.reader.timer.Stop()
	d.boxes.known = map[*nats.Subscription]*pull.Inbox{}
	changes := nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.DRAINING_SUBS, nats.CLOSED)
	seen := nc.Stats().Reconnects
	d.connectionIs(nc.Status(), false)
	d.group.Go(func(ctx context.Context) { d.watch(ctx, changes, seen) })
	return d
}

// epoch is the start of the engine's time: the last multiple of pull.StandingHeartbeat, so that the idle Subscriptions of a
// connection are in step. Each connection adds an offset by its number on the server, or all clients would pull at once.
func epoch(nc *nats.Conn) time.Time {
	id, _ := nc.GetClientID() // 0 if the server is too old to report it
	now := time.Now()
	phase := time.Duration(id%1000) * 619 * time.Millisecond
	return now.Add(-(time.Duration(now.UnixNano()) + phase) % pull.StandingHeartbeat)
}

// Now is the time since the driver's epoch, as the engine counts it.
func (d *Driver) Now() pull.At { return time.Since(d.epoch) }

// Do runs f with the engine, and carries out the effects. If f posts a standing demand, the background reader reads for it,
// unless a caller does.
func (d *Driver) Do(f func(e *pull.Engine, now pull.At)) {
	d.mu.Lock()
	f(d.engine, d.Now())
	d.ensureReader()
	d.reader.check(d)
	d.act()
	d.mu.Unlock()
}

// act carries out the engine's effects, unless another goroutine does. The lock is held, and released meanwhile.
func (d *Driver) act() {
	if d.acting {
		return
	}
	d.acting = true
	var batch []pull.Effect
	for {
		if batch = d.engine.Effects(batch); len(batch) == 0 {
			break
		}
		d.unlocked(func() {
			for i := range batch {
				d.perform(&batch[i])
			}
		})
	}
	d.acting = false
	if !d.engine.Draining() {
		for _, q := range d.quiet {
			close(q)
		}
		d.quiet = nil
	}
}

// unlocked runs f without the lock.
func (d *Driver) unlocked(f func()) {
	d.mu.Unlock()
	f()
	d.mu.Lock()
}

func (d *Driver) perform(f *pull.Effect) {
	switch f.Kind {
	case pull.Send:
		d.send(f)
	case pull.Unsubscribe:
		d.unsubscribe(f.Inbox)
	case pull.Drain:
		d.drain(f.Inbox, f.Silent)
	case pull.Nak:
		_ = f.Msg.Nak() // if it fails, the server redelivers the message after AckWait
	case pull.Wake:
		wake(f.Demand.Ref)
	case pull.Deliver:
		f.Demand.Ref.(Sink).Deliver(f.Msgs, f.Done, f.Err)
	case pull.Problem:
		f.Demand.Ref.(Sink).Problem(f.Err)
	case pull.Healthy:
		f.Demand.Ref.(Sink).Healthy()
	case pull.PinGained, pull.PinLost:
		d.hooks.Pin(f.Pin.Group, f.Pin.ID, f.Kind == pull.PinGained)
	case pull.ReadConfig:
		d.readConfig()
	}
}

// send sends a pull. If it cannot be sent, the connection is lost or closed, which the engine hears from watch.
func (d *Driver) send(f *pull.Effect) {
	if f.Inbox.Ref == nil && !d.subscribe(f.Inbox) {
		return
	}
	before := d.nc.LastError()
	d.mu.Lock()
	d.refused = before
	d.mu.Unlock()
	_ = d.nc.PublishRequest(d.subject, f.Reply, f.Pull.JSON())
}

// Close ends all calls with err, hands back messages on the wire, and waits until that is done. If ctx ends first, the rest goes
// on in the background, and takes as long as an inbox may take to drain, at most.
func (d *Driver) Close(ctx context.Context, err error) error {
	d.Do(func(e *pull.Engine, now pull.At) {
		if !e.Closed() {
			d.end(err)
			e.Close(now, err)
		}
	})
	d.AwaitQuiet(ctx)
	d.reader.timer.Stop() // or it would keep the driver in memory until it fires
	if ctx.Err() == nil {
		return nil
	}
	d.group.Go(func(ctx context.Context) {
		d.AwaitQuiet(ctx)
		d.group.Stop()
	})
	return fmt.Errorf("jetpull: close: what is on the wire has not been handed back: %w", ctx.Err())
}

// AwaitQuiet waits until nothing is on the wire of inboxes that were dropped, and what came is handed back.
func (d *Driver) AwaitQuiet(ctx context.Context) {
	d.mu.Lock()
	if !d.engine.Draining() && !d.acting {
		d.mu.Unlock()
		return
	}
	quiet := make(chan struct{})
	d.quiet = append(d.quiet, quiet)
	d.ensureReader()
	d.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// Stop ends the driver's goroutines, after Close, and waits for them.
func (d *Driver) Stop(ctx context.Context) error {
	d.group.Stop()
	if err := d.group.Wait(ctx); err != nil {
		return fmt.Errorf("jetpull: close: %w", err)
	}
	return nil
}

// Go runs f on a goroutine of the driver's; see lifecycle.Group.
func (d *Driver) Go(f func(ctx context.Context)) bool { return d.group.Go(f) }
