package transport

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/pull"
)

// readAtOnce bounds how many frames are taken under one lock.
const readAtOnce = 128

// nudgeFrame wakes the reader, so that it checks its timer, the drained inboxes, and whether another goroutine
// has ended its own demand. It arrives like any other frame, so that the reader waits on one channel.
var nudgeFrame = &nats.Msg{}

// reader is the state of reading. The driver's lock guards it.
type reader struct {
	reading bool        // a goroutine reads
	call    *Call       // of the caller that reads; nil for the background reader
	armed   pull.At     // when the timer fires; 0: it does not
	timer   *time.Timer // of the engine's next tick
	frames  []*nats.Msg // memory for frames that are read together; the goroutine that reads owns it
}

// check nudges the reader if another goroutine has ended the reader's demand, or if its timer fires too late.
func (r *reader) check(d *Driver) {
	due := d.engine.NextTick()
	if r.call != nil && r.call.Done || due != 0 && (r.armed == 0 || due < r.armed) {
		d.sendNudge()
	}
}

// arm sets the timer to when the engine is next due. A timer that fires too early is harmless and is left alone:
// setting it for each message costs more.
func (r *reader) arm(d *Driver) {
	due := d.engine.NextTick()
	if due == 0 || r.armed != 0 && r.armed <= due && due <= r.armed+time.Second {
		return
	}
	if now := d.Now(); due < r.armed || r.armed == 0 || r.armed > now { // else it has fired
		r.armed = due
		r.timer.Reset(max(0, due-now))
	}
}

// sendNudge nudges the reader. The lock is held.
func (d *Driver) sendNudge() {
	if d.nudged {
		return
	}
	d.nudged = true
	select {
	case d.in <- nudgeFrame:
	default: // the reader has frames to take, and looks for nudges after those
	}
}

// Call is a call that waits for its demand. Got and Err are its results.
type Call struct {
	pull.Demand
	ready chan struct{}   // its demand is done, or it is to read from now on; nil while it need not wait for that
	one   [1]pull.Message // memory for Got
}

// wake wakes the call with the given ready channel.
func wake(ready any) {
	select {
	case ready.(chan struct{}) <- struct{}{}:
	default:
	}
}

// Get gets messages. The error of the call is the engine's; if ctx ends first it is a *pull.Timeout too.
func (d *Driver) Get(ctx context.Context, ask pull.Ask) *Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := &Call{}
	w.Ask, w.Ref, w.Got = ask, w.ready, w.one[:0]
	d.engine.Post(d.Now(), &w.Demand)
	if !w.Done && !d.reader.reading {
		d.reader.reading, w.Reading = true, true
	} else if d.reader.reading {
		d.reader.check(d)
	}
	for !w.Reading {
		if w.ready == nil {
			w.ready = make(chan struct{}, 1)
			w.Ref = w.ready
		}
		d.act()
		interrupted := false
		d.unlocked(func() {
			select {
			case <-w.ready:
			case <-ctx.Done():
				interrupted = true
			}
		})
		if interrupted {
			d.engine.Cancel(d.Now(), &w.Demand, &pull.Timeout{Cause: w.Cause()})
		}
		if w.Done && !w.Reading {
			d.act()
			return w
		}
	}
	d.read(ctx, w)
	return w
}

// read reads until w is done. Then it passes the reading on: to the first demand whose caller waits, else to the background
// reader if frames can still arrive. Without w it reads until nothing can arrive any more. The lock is held, and released
// meanwhile.
func (d *Driver) read(ctx context.Context, w *Call) {
	d.reader.call = w
	for {
		if w != nil && w.Done || w == nil && !d.engine.Busy() && len(d.boxes.drained) == 0 {
			d.reader.call = nil
			if !d.engine.PassReading() {
				d.reader.reading = false
				d.ensureReader()
			}
			d.act()
			return
		}
		d.reader.arm(d)
		d.act()
		var some []*nats.Msg
		d.unlocked(func() { some = d.receive(ctx) })
		switch {
		case len(some) > 0:
			d.takeAll(some)
		case w != nil:
			d.engine.Cancel(d.Now(), &w.Demand, &pull.Timeout{Cause: w.Cause()})
		default:
			d.reader.reading = false
			return
		}
	}
}

// receive waits for the next frame, and returns it with the others that have arrived; none if ctx ends first.
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

// ensureReader starts the background reader if frames can arrive and no goroutine reads.
func (d *Driver) ensureReader() {
	if d.reader.reading || !d.engine.Busy() && len(d.boxes.drained) == 0 {
		return
	}
	d.reader.reading = d.group.Go(func(ctx context.Context) {
		d.mu.Lock()
		d.read(ctx, nil)
		d.mu.Unlock()
	})
}

// takeAll passes frames that have arrived to the engine. After a nudge it looks at the timer, and closes the drained inboxes.
func (d *Driver) takeAll(some []*nats.Msg) {
	now := d.Now()
	for _, m := range some {
		d.take(now, m)
	}
	clear(some)
	if !d.nudged {
		return
	}
	d.nudged = false
	if now = d.Now(); d.reader.armed != 0 && d.reader.armed <= now {
		d.reader.armed = 0
		if err := Refusal(d.nc, d.subject, d.refused); err != nil {
			d.engine.Fail(now, err, false)
			d.refused = d.nc.LastError()
		}
		d.engine.Tick(now)
	}
	if len(d.boxes.drained) == 0 {
		return
	}
	for range len(d.in) { // the frames of drained inboxes first
		d.take(now, <-d.in)
	}
	for _, ib := range d.boxes.drained {
		d.boxes.forget(ib)
		d.engine.Drained(now, ib)
	}
	d.boxes.drained = d.boxes.drained[:0]
}
