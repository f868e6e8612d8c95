package transport

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/wire"
)

// readAtOnce is the maximum number of frames that are taken under one lock.
const readAtOnce = 128

// nudgeFrame wakes the reader, so that it checks its timer, the drained inboxes, and whether another goroutine
// has ended the reader's demand. It arrives like any other frame, so that the reader waits on one channel.
var nudgeFrame = &nats.Msg{}

// reader is the state of reading. The driver's lock guards it.
type reader struct {
	reading bool        // a goroutine reads
	call    *Call       // the call of the reader; nil for the background reader
	waiting []*Call     // calls that wait, in order
	armed   pull.At     // when timer fires; 0: it is stopped
	timer   *time.Timer // for the engine's next tick
	frames  []*nats.Msg // memory for frames that are read together; the goroutine that reads owns it
}

// checkReaderLocked nudges the reader if another goroutine has ended the reader's demand, or if its timer fires too late.
func (d *Driver) checkReaderLocked() {
	r, due := &d.reader, d.engine.NextTick()
	if r.call != nil && r.call.Done || due != 0 && (r.armed == 0 || due < r.armed) {
		d.nudgeLocked()
	}
}

// armLocked sets the timer to the engine's next tick. A timer that fires too early is harmless, and stays as it is: to set
// it for each message costs more.
func (d *Driver) armLocked() {
	r, due := &d.reader, d.engine.NextTick()
	if due == 0 || r.armed != 0 && r.armed <= due && due <= r.armed+time.Second {
		return
	}
	if now := d.Now(); due < r.armed || r.armed == 0 || r.armed > now { // otherwise it has fired
		r.armed = due
		r.timer.Reset(max(0, due-now))
	}
}

// nudgeLocked nudges the reader.
func (d *Driver) nudgeLocked() {
	if d.nudged {
		return
	}
	d.nudged = true
	select {
	case d.in <- nudgeFrame:
	default: // the channel is full: the reader checks nudged after it has taken those frames
	}
}

// Call is a call that waits for its demand. Got and Err are its results.
type Call struct {
	pull.Demand
	ready chan struct{}   // has an element when the demand is done, or when the call must read; nil: the call does not wait
	reads bool            // the call must read. Under the driver's lock
	one   [1]pull.Message // memory for Got
}

// wake wakes the call, if it waits.
func (w *Call) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Get gets messages. The error of the call is the engine's. If ctx ends first, it is a *pull.Timeout, as after the deadline.
func (d *Driver) Get(ctx context.Context, ask pull.Ask) *Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := &Call{}
	w.Ask, w.Ref, w.Got = ask, w, w.one[:0]
	d.engine.Post(d.Now(), &w.Demand)
	switch {
	case d.reader.reading:
		d.checkReaderLocked()
		d.awaitReleasing(ctx, w)
	case !w.Done:
		d.reader.reading, w.reads = true, true
	}
	if w.reads {
		d.readReleasing(ctx, w)
	} else {
		d.actReleasing()
	}
	return w
}

// awaitReleasing waits until w is done or must read.
func (d *Driver) awaitReleasing(ctx context.Context, w *Call) {
	w.ready = make(chan struct{}, 1)
	d.reader.waiting = append(d.reader.waiting, w)
	for !w.Done && !w.reads {
		d.actReleasing()
		interrupted := false
		d.mu.Unlock()
		select {
		case <-w.ready:
		case <-ctx.Done():
			interrupted = true
		}
		d.mu.Lock()
		if interrupted {
			d.engine.Cancel(d.Now(), &w.Demand, &pull.Timeout{Cause: w.Cause()})
		}
	}
	d.reader.waiting = slices.DeleteFunc(d.reader.waiting, func(o *Call) bool { return o == w })
}

// readReleasing reads until w is done, and then passes the reading on. If w is nil, it reads until nothing more can arrive, or ctx ends.
func (d *Driver) readReleasing(ctx context.Context, w *Call) {
	d.reader.call = w
	for w == nil && (d.engine.Busy() || len(d.boxes.drained) > 0) || w != nil && !w.Done {
		d.armLocked()
		d.actReleasing()
		d.mu.Unlock()
		some := d.receive(ctx)
		d.mu.Lock()
		switch {
		case len(some) > 0:
			d.takeAllLocked(some)
		case w != nil:
			d.engine.Cancel(d.Now(), &w.Demand, &pull.Timeout{Cause: w.Cause()})
		default:
			d.reader.reading = false
			return
		}
	}
	d.reader.call = nil
	d.actReleasing()
	d.passReadingLocked()
}

// passReadingLocked makes the call that has waited longest the reader, or else the background reader if frames can still arrive.
func (d *Driver) passReadingLocked() {
	for _, w := range d.reader.waiting {
		if !w.Done {
			w.reads = true
			w.wake()
			return
		}
	}
	d.reader.reading = false
	d.ensureReaderLocked()
}

// receive waits for the next frame, and returns it with the others that have arrived. It returns none if ctx ends first.
func (d *Driver) receive(ctx context.Context) []*nats.Msg {
	some := d.reader.frames[:0]
	select {
	case m := <-d.in:
		some = append(some, m)
	case <-ctx.Done():
		return nil
	}
	for range min(len(d.in), readAtOnce-1) {
		some = append(some, <-d.in)
	}
	d.reader.frames = some
	return some
}

// ensureReaderLocked starts the background reader if frames can arrive and no goroutine reads.
func (d *Driver) ensureReaderLocked() {
	if d.reader.reading || !d.engine.Busy() && len(d.boxes.drained) == 0 {
		return
	}
	d.reader.reading = d.group.Go(func(ctx context.Context) {
		d.mu.Lock()
		d.readReleasing(ctx, nil)
		d.mu.Unlock()
	})
}

// takeAllLocked passes frames to the engine. After a nudge, it checks the timer and reports the drained inboxes to the engine.
func (d *Driver) takeAllLocked(some []*nats.Msg) {
	now := d.Now()
	for _, m := range some {
		d.takeLocked(now, m)
	}
	clear(some)
	if !d.nudged {
		return
	}
	d.nudged = false
	if now = d.Now(); d.reader.armed != 0 && d.reader.armed <= now {
		d.reader.armed = 0
		if err := Refusal(d.nc, d.refused, d.subject); err != nil {
			d.engine.Fail(now, err, false)
			d.refused = d.nc.LastError()
		}
		d.engine.Tick(now)
	}
	if len(d.boxes.drained) == 0 {
		return
	}
	for range len(d.in) { // the frames of drained inboxes first
		d.takeLocked(now, <-d.in)
	}
	for _, ib := range d.boxes.drained {
		d.boxes.forget(ib)
		d.engine.Drained(now, ib)
	}
	d.boxes.drained = d.boxes.drained[:0]
}

// takeLocked passes one frame to the engine.
func (d *Driver) takeLocked(now pull.At, raw *nats.Msg) {
	if raw == nudgeFrame {
		return
	}
	ib := d.boxes.of(raw.Sub)
	if raw.Reply == "" && strings.HasPrefix(raw.Subject, ib.Prefix) {
		if s, ok := wire.ParseStatus(raw.Header); ok {
			d.engine.Status(now, ib, raw.Subject, s)
		}
		return
	}
	size, pin := raw.Size(), ""
	if d.engine.PinnedPolicy() && len(raw.Header) > 0 {
		if pin = wire.PinID(raw.Header); pin != "" {
			// The server adds the header with the pin id after it has counted the bytes.
			size -= len(wire.HeaderPinID) + len(": ") + len(pin) + len("\r\n")
			if len(raw.Header) == 1 {
				size -= len("NATS/1.0\r\n\r\n")
			}
		}
	}
	d.engine.Message(now, ib, d.hooks.Wrap(raw, size), size, pin)
}
