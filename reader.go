package jetpull

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// newClaim takes a claim from the engine's free ones. The lock is held. The
// free ones belong to the engine, not to a global pool, because a channel made
// in a testing/synctest bubble must not leave it.
func (e *engine) newClaim() *claim {
	n := len(e.free)
	if n == 0 {
		return &claim{ready: make(chan struct{}, 1)}
	}
	c := e.free[n-1]
	e.free = e.free[:n-1]
	return c
}

// freeClaims bounds how many claims are kept for the next calls.
const freeClaims = 128

// recycle gives back a claim whose call has returned. The lock is held.
func (e *engine) recycle(c *claim) {
	if len(e.free) >= freeClaims {
		return
	}
	select {
	case <-c.ready:
	default:
	}
	*c = claim{ready: c.ready}
	e.free = append(e.free, c)
}

// await posts a claim and returns when it is done. The lock is held on entry
// and on return.
func (e *engine) await(ctx context.Context, c *claim) {
	e.rules.post(e.now(), c)
	if !c.done && !e.reading {
		e.reading, c.leads = true, true
	} else if e.reading && e.dueEarlier() {
		e.toNudge = true
	}
	for !c.leads {
		e.act()
		select {
		case <-c.ready:
			e.mu.Lock()
		case <-ctx.Done():
			e.mu.Lock()
			e.rules.leave(e.now(), c, contextError(ctx, c.cause))
		}
		if c.done && !c.leads {
			e.flush()
			return
		}
	}
	e.read(ctx, c)
}

// dueEarlier reports whether the reader's timer fires too late.
func (e *engine) dueEarlier() bool {
	return e.rules.due != 0 && (e.armed == 0 || e.rules.due < e.armed)
}

// flush carries out the actions at hand and holds the lock again after.
func (e *engine) flush() {
	if len(e.rules.actions) > 0 {
		e.act()
		e.mu.Lock()
	}
}

// read reads until c is done, then passes the reading on. With no claim it
// reads until nothing can arrive any more. The lock is held on entry and on
// return.
func (e *engine) read(ctx context.Context, c *claim) {
	for {
		if c != nil && c.done || c == nil && !e.rules.reading() && len(e.drained) == 0 {
			e.resign()
			e.flush()
			return
		}
		e.arm()
		e.act()
		if c == nil && e.handOver() {
			return
		}
		m := e.frame(ctx)
		e.mu.Lock()
		switch {
		case m != nil:
			e.takeAll(m)
		case c != nil:
			e.rules.leave(e.now(), c, contextError(ctx, c.cause))
		default:
			e.reading = false
			e.closedDown()
			return
		}
	}
}

// frame waits for the next frame; nil when ctx ends first.
func (e *engine) frame(ctx context.Context) *nats.Msg {
	done := ctx.Done()
	if done == nil {
		return <-e.in
	}
	select {
	case m := <-e.in:
		return m
	case <-done:
		return nil
	}
}

// readFor lets the only worker of st read for everybody until there is something
// for it to handle: a message then wakes the goroutine that handles it and no
// other. It returns false if somebody else reads. No lock is held.
func (e *engine) readFor(st *stream) bool {
	e.mu.Lock()
	if e.reading {
		e.mu.Unlock()
		return false
	}
	e.reading = true
	for {
		e.arm()
		e.act()
		if !st.queue.park() {
			break
		}
		m := <-e.in
		e.mu.Lock()
		e.takeAll(m)
	}
	e.mu.Lock()
	e.stepAside()
	e.act()
	return true
}

// readerAbsence is how long nobody may read while a worker that reads for itself
// is handling what it got.
const readerAbsence = time.Millisecond

// stepAside leaves the reading to the worker that has just done it and will be
// back soon; if it is not, the caretaker takes over. The lock is held.
func (e *engine) stepAside() {
	if e.rules.closed || e.rules.draining > 0 || len(e.streams) != 1 {
		e.resign()
		return
	}
	for _, l := range e.rules.lanes {
		for _, c := range l.claims {
			if c.mode != claimStanding {
				e.resign()
				return
			}
		}
	}
	e.reading = false
	e.absence.Reset(readerAbsence)
}

// endAbsence is called when nobody has read for a while.
func (e *engine) endAbsence() {
	e.mu.Lock()
	e.ensureReader()
	e.mu.Unlock()
}

// handOver ends the caretaker's reading where the only worker there is waited for
// what it has just got: from now on it reads for itself. The lock is not held on
// entry, and held on return if it reports true.
func (e *engine) handOver() bool {
	if !e.awaited.CompareAndSwap(true, false) {
		return false
	}
	e.mu.Lock()
	if len(e.streams) != 1 || !e.rules.reading() {
		e.mu.Unlock()
		return false
	}
	e.stepAside()
	if e.reading {
		e.flush()
	}
	return true
}

// takeAll takes m and what else has arrived.
func (e *engine) takeAll(m *nats.Msg) {
	now := e.now()
	e.take(now, m)
	for range min(len(e.in), readAtOnce) {
		e.take(now, <-e.in)
	}
	// Again, because the frame of a later nudge may be among those taken here.
	for e.nudged.Swap(false) {
		if e.armed != 0 && e.armed <= now {
			e.tick()
		}
		e.takePong()
		e.takeDrained()
	}
}

// takeDrained closes the inboxes that have been drained, after what came on
// them.
func (e *engine) takeDrained() {
	if len(e.drained) == 0 {
		return
	}
	now := e.now()
	for range len(e.in) {
		e.take(now, <-e.in)
	}
	for _, ib := range e.drained {
		e.rules.drained(now, ib)
		e.forget(ib)
	}
	e.drained = e.drained[:0]
	if e.rules.draining == 0 {
		for _, q := range e.quiet {
			close(q)
		}
		e.quiet = nil
	}
}

const (
	slabSize    = 64
	slabFrom    = 8
	slabPayload = 2 << 10
)

// newMsg wraps raw. Small messages that come in numbers share an allocation;
// a large one has its own, so that no message keeps another's payload alive.
func (e *engine) newMsg(raw *nats.Msg, ib *inbox) *Msg {
	if len(raw.Data) > slabPayload || ib == nil {
		return &Msg{raw: raw, sub: e.sub}
	}
	if len(e.slab) == 0 {
		if ib.pull == nil || ib.pull.left < slabFrom {
			return &Msg{raw: raw, sub: e.sub}
		}
		e.slab = make([]Msg, min(slabSize, ib.pull.left))
	}
	m := &e.slab[0]
	e.slab = e.slab[1:]
	m.raw, m.sub = raw, e.sub
	return m
}

// awaitQuiet waits until nothing is on the wire of inboxes that were dropped.
func (e *engine) awaitQuiet(ctx context.Context) {
	e.mu.Lock()
	if e.rules.draining == 0 {
		e.mu.Unlock()
		return
	}
	quiet := make(chan struct{})
	e.quiet = append(e.quiet, quiet)
	e.ensureReader()
	e.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

func (e *engine) tick() {
	now := e.now()
	e.armed = 0
	e.rules.tick(now)
	e.lookForRefusal(now)
	e.rules.next(now)
}

// lookForRefusal ends all claims if pulls stayed unanswered because the server
// has refused them. It comes before the next pull is sent.
func (e *engine) lookForRefusal(now at) {
	if e.rules.stats.silent == e.silentSeen {
		return
	}
	e.silentSeen = e.rules.stats.silent
	if err := e.sub.refusals.news(e.nc, e.subject); err != nil {
		e.rules.refused(now, err)
	}
}

// arm sets the timer to when the rules are next due. One that fires too early
// is harmless, so it is left alone where it does.
func (e *engine) arm() {
	if !e.dueEarlier() {
		return
	}
	e.armed = e.rules.due
	e.timer.Reset(max(0, e.armed-e.now()))
}

// resign passes the reading on: to the first claim whose caller waits, or to
// the caretaker where something can still arrive, or to nobody.
func (e *engine) resign() {
	for _, l := range e.rules.lanes {
		for _, c := range l.claims {
			if c.mode != claimStanding {
				c.leads = true
				e.rules.do(action{kind: actWake, claim: c})
				return
			}
		}
	}
	e.reading = false
	e.ensureReader()
	e.closedDown()
}

// closedDown tells Close that everything has come in, and that what goes back
// has been sent.
func (e *engine) closedDown() {
	if e.rules.closed && !e.reading && !e.acting && len(e.rules.actions) == 0 {
		select {
		case <-e.closing:
		default:
			close(e.closing)
		}
	}
}

// ensureReader starts the caretaker where something can arrive and nobody
// reads.
func (e *engine) ensureReader() {
	if e.reading || !e.rules.reading() && len(e.drained) == 0 {
		return
	}
	e.reading = e.group.Go(func(ctx context.Context) {
		e.mu.Lock()
		e.read(ctx, nil)
		e.mu.Unlock()
	})
}

// deadlineFor is when a call with settings s has to be over, whether the user
// chose that wait, and whether the context did.
func (e *engine) deadlineFor(ctx context.Context, s *settings) (deadline at, asked, byContext bool) {
	wait, asked := s.wait()
	if until, ok := ctx.Deadline(); ok {
		// A deadline in centuries is none; added to the clock it would overflow.
		if left := min(time.Until(until), maxWait); left < wait || !asked {
			wait, asked, byContext = left, false, true
		}
	}
	return e.now() + max(wait, 1), asked, byContext
}
