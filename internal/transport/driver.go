// Package transport carries out the effects of the pull engine on a nats.Conn, and passes arriving frames to the
// engine. It is the only internal package of the client that holds a connection.
//
// All inboxes deliver into one channel, and one goroutine at a time reads it: the caller at the head, so that a
// message wakes only the goroutine that wants it. When that caller has its messages, the next caller that waits
// becomes the reader. If none waits and frames can still arrive, the background reader reads.
//
// The driver's lock is never held over a channel operation that can block, a callback or I/O; DESIGN.md has the
// lock order. Effects are carried out without the lock, in order, by one goroutine at a time. A method whose name ends in Locked or
// Releasing is called with the lock held. A Releasing method releases it while it carries out effects or waits.
package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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
	Pin func(pull.Pin)
	// Doubt starts a reading of the consumer, which may have changed or be gone. The reading is repeated while the engine is Proving, and
	// each answer is reported as Answered.
	Doubt func()
}

// Sink is the Ref of a standing demand, and receives its messages and problems: in order, from one goroutine at a time, and
// without a lock. Deliver must not keep ms.
type Sink interface {
	Deliver(ms []pull.Message, done bool, err error)
	Problem(err error) // nil: pulls are answered again
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
	nudged  bool // the reader was nudged, and has not reacted yet
	acting  bool // a goroutine carries out effects
	reader  reader
	boxes   inboxes
	quiet   []quiet
	refused error // the connection's last error before the last pull was sent
}

// New returns a driver for a consumer. It publishes pulls to subject. onOrder is the maximum number of messages that windows have on order.
// The driver calls no hook before Start.
func New(nc *nats.Conn, subject string, lim pull.Limits, onOrder int, inboxes *Inboxes, hooks Hooks) *Driver {
	d := &Driver{
		nc: nc, subject: subject, hooks: hooks, epoch: epoch(nc), in: make(chan *nats.Msg, slots(onOrder)),
		group: lifecycle.New(), refused: nc.LastError(),
	}
	d.Over, d.end = context.WithCancelCause(context.Background())
	d.engine = pull.New(inboxes.base, lim, cap(d.in)-statusSlots, rand.Uint64())
	d.reader.timer = time.AfterFunc(time.Hour, func() {
		d.mu.Lock()
		d.nudgeLocked()
		d.mu.Unlock()
	})
	d.reader.timer.Stop()
	d.boxes.known = map[*nats.Subscription]*pull.Inbox{}
	return d
}

// Start begins to watch the connection.
func (d *Driver) Start() {
	changes := d.nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.DRAINING_SUBS, nats.CLOSED)
	seen := d.nc.Stats().Reconnects
	d.connectionIs(d.nc.Status(), false)
	d.group.Go(func(ctx context.Context) { d.watch(ctx, changes, seen) })
}

// epoch returns the start of the engine's time: the last multiple of pull.StandingHeartbeat, so that the idle Subscriptions of a
// connection are in step. Each connection adds an offset, by its number on the server. Otherwise all clients would pull at once.
func epoch(nc *nats.Conn) time.Time {
	id, _ := nc.GetClientID() // 0 if the server is too old to report it
	now := time.Now()
	phase := time.Duration(id%1000) * 619 * time.Millisecond
	return now.Add(-(time.Duration(now.UnixNano()) + phase) % pull.StandingHeartbeat)
}

// Now returns the time since the driver's epoch, which is the engine's time.
func (d *Driver) Now() pull.At { return time.Since(d.epoch) }

// Do runs f with the engine, and carries out the effects. If f posts a standing demand, the background reader reads for it,
// unless a caller does.
func (d *Driver) Do(f func(e *pull.Engine, now pull.At)) {
	d.mu.Lock()
	f(d.engine, d.Now())
	d.ensureReaderLocked()
	d.checkReaderLocked()
	d.actReleasing()
	d.mu.Unlock()
}

// actReleasing carries out the engine's effects, unless another goroutine does.
func (d *Driver) actReleasing() {
	if d.acting {
		return
	}
	d.acting = true
	var batch []pull.Effect
	for {
		if batch = d.engine.Effects(batch); len(batch) == 0 {
			break
		}
		d.mu.Unlock()
		for i := range batch {
			d.perform(&batch[i])
		}
		d.mu.Lock()
	}
	d.acting = false
	d.quiet = slices.DeleteFunc(d.quiet, func(q quiet) bool {
		if d.engine.Left(q.n) {
			return false
		}
		close(q.reached)
		return true
	})
}

func (d *Driver) perform(f *pull.Effect) {
	switch f.Kind {
	case pull.Send:
		d.send(f)
	case pull.Unsubscribe:
		d.unsubscribe(f.Inbox)
	case pull.Drain:
		d.drain(f.Inbox)
	case pull.Nak:
		_ = f.Msg.Nak() // if it fails, the server redelivers the message after AckWait
	case pull.Wake:
		f.Demand.Ref.(*Call).wake()
	case pull.Deliver:
		f.Demand.Ref.(Sink).Deliver(f.Msgs, f.Done, f.Err)
	case pull.Problem:
		f.Demand.Ref.(Sink).Problem(f.Err)
	case pull.PinChanged:
		d.hooks.Pin(*f.Pin)
	case pull.Doubt, pull.Prove:
		d.hooks.Doubt()
	}
}

// send sends a pull. If that fails, the connection is lost or closed, which watch reports to the engine.
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

// Close ends all calls with err, hands back messages in flight, and waits until that is done. If ctx ends first, the rest continues
// in the background, at most until all inboxes have drained.
func (d *Driver) Close(ctx context.Context, err error) error {
	d.Do(func(e *pull.Engine, now pull.At) {
		d.end(err)
		e.Close(now, err)
	})
	d.AwaitQuiet(ctx)
	d.reader.timer.Stop() // otherwise it keeps the driver in memory until it fires
	if ctx.Err() == nil {
		return nil
	}
	d.group.Go(func(ctx context.Context) {
		d.AwaitQuiet(ctx)
		d.group.Stop()
	})
	return fmt.Errorf("jetpull: close: what is on the wire has not been handed back: %w", ctx.Err())
}

// quiet closes reached when nothing more can arrive on the first n inboxes that were given up, and all effects were carried out.
type quiet struct {
	n       uint64
	reached chan struct{}
}

// AwaitQuiet waits until nothing more can arrive on the inboxes that have been given up, and their messages are handed back. Inboxes
// that other calls give up meanwhile do not count.
func (d *Driver) AwaitQuiet(ctx context.Context) {
	d.mu.Lock()
	q := quiet{d.engine.Retired(), make(chan struct{})}
	if !d.engine.Left(q.n) && !d.acting {
		d.mu.Unlock()
		return
	}
	d.quiet = append(d.quiet, q)
	d.ensureReaderLocked()
	d.mu.Unlock()
	select {
	case <-q.reached:
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

// Go runs f on a goroutine of the driver; see lifecycle.Group.
func (d *Driver) Go(f func(ctx context.Context)) bool { return d.group.Go(f) }
