package jetpull

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/lifecycle"
)

// stream is what Messages and Consume share: a standing claim on the engine,
// the queue that it fills, and what keeps the held messages alive.
//
// It owns one goroutine, the housekeeper, and ends by halt: the claim leaves,
// which ends pulling, and what was not started goes back to the server.
type stream struct {
	ctx       context.Context // of the call
	sub       *Subscription
	e         *engine
	set       *settings
	claim     *claim
	queue     *dispatch
	window    *window
	group     *lifecycle.Group
	log       *slog.Logger
	acks      *coalescer // ack policy all; nil: one acknowledgement a message
	outbox    *outbox    // handlers that run side by side; nil: none
	fence     *fence     // Consume with ack policy all; nil: none
	aside     *aside     // messages whose dead letter is not stored
	call      call       // Consume or Messages
	ackPolicy jetstream.AckPolicy
	following sync.Mutex    // while it takes over a changed configuration
	facts     facts         // that it goes by
	renewed   chan struct{} // tells the housekeeper that they are new
	// problems are what OnError is told.
	problems *problems
	// reads lets the only worker read for itself; nil where there are several.
	reads func() bool

	size atomic.Int32 // of the window, as the rules know it
	beat atomic.Int32 // rounds of the housekeeper
	// upset is when something last happened that can lose a NAK, in nanoseconds.
	upset   atomic.Int64
	lifting atomic.Bool // while the server is asked about lines

	ended chan struct{} // pulling has ended, and what was not started is back

	abandoned atomic.Int64 // messages at their last delivery that nobody handled

	mu       sync.Mutex
	grace    time.Time // until when abandon tries; zero: not yet
	halted   bool
	err      error // why it ended by itself
	troubles troubles
}

// openStream starts reading ahead for workers that the caller runs. settles
// tells that they settle each message before they take the next.
func (s *Subscription) openStream(ctx context.Context, set *settings, workers int, settles bool) *stream {
	e, o := s.engine, &set.streaming
	cfg := s.config()
	ackAll := cfg.AckPolicy == jetstream.AckAllPolicy
	st := &stream{
		call: callMessages, ackPolicy: cfg.AckPolicy, facts: factsOf(cfg), renewed: make(chan struct{}, 1),
		ctx: ctx, sub: s, e: e, set: set, log: set.logger.With("stream", s.stream, "consumer", s.consumer),
		window: newWindow(o.prefetch, workers, s.windowBound(ackAll && settles), s.patience()),
		group:  lifecycle.New(),
		aside:  newAside(s, o.prefetchBytes),
		ended:  make(chan struct{}),
	}
	if settles {
		st.call = callConsume
	}
	st.problems = &problems{call: o.onError, post: e.notices.post, log: st.log}
	st.window.bytes = max(windowBytes, o.prefetchBytes)
	st.window.ahead += 2 * s.trip
	lined, key := o.orderedBy != nil, o.orderedBy
	if ackAll {
		// A message that failed must not be acknowledged by a later one, so all
		// messages stand in one line.
		lined, key = true, nil
		st.acks = newCoalescer(s.config().MaxAckPending)
		if settles {
			st.fence = newFence()
		}
	}
	if workers > 1 {
		st.outbox = newOutbox(st.report)
	}
	st.queue = newDispatch(workers, lined, key)
	st.queue.tell = st.tellFreed
	st.queue.nudge, st.queue.clock, st.queue.strange = e.nudge, e.now, e.strange
	st.queue.most, st.queue.finishes = uint64(max(0, cfg.MaxDeliver)), settles && !s.ackNone.Load()
	st.queue.memory.most = memoryMost
	st.queue.mostBytes = st.aside.mostBytes
	if st.acks == nil && !s.ackNone.Load() {
		st.queue.grace = min(s.patience(), lineGrace)
	}
	if workers == 1 {
		st.reads = func() bool { return e.readFor(st) }
	}
	c := &claim{mode: claimStanding, ready: make(chan struct{}, 1), maxBytes: set.maxBytes}
	c.stand = standing{window: st.window.size, workers: workers, byteBound: o.byteBound(), onError: st.problem, onCalm: st.calm, sink: st.sink}
	st.claim = c
	st.setLot(st.window.size)
	st.size.Store(int32(st.window.size))
	if every := st.rounds(); every > 0 {
		st.group.Go(func(ctx context.Context) { st.keepHouse(ctx, every) })
	}
	e.mu.Lock()
	c.lane = e.rules.laneOf(set.terms, set.heartbeat, false)
	e.streams = append(e.streams, st)
	e.rules.post(e.now(), c)
	if st.reads == nil {
		e.ensureReader()
	} else if !e.reading {
		e.absence.Reset(readerAbsence)
	}
	if e.dueEarlier() {
		e.toNudge = true
	}
	e.act()
	if s.changed.Load() {
		st.follow() // what changed since the settings were checked
	}
	return st
}

// patience is the AckWait that held messages have to be kept within; 0 where
// nothing is redelivered.
func (s *Subscription) patience() time.Duration {
	if s.ackNone.Load() {
		return 0
	}
	wait := s.config().AckWait
	for _, d := range s.config().BackOff {
		wait = min(wait, d)
	}
	if wait <= 0 {
		return 30 * time.Second
	}
	return wait
}

// sink takes messages from the engine. It is called by one goroutine at a time,
// without a lock.
func (st *stream) sink(ms []*Msg, done bool, err error) {
	if len(ms) > 0 {
		for _, m := range ms {
			if m.redelivered() {
				st.sub.counts.redelivered.Add(1)
			}
		}
		if st.reads != nil && st.queue.awaited() {
			st.e.awaited.Store(true)
		}
		if st.acks != nil {
			st.inspect(ms)
		}
		rejected, freed, bytes := st.queue.push(st.e.now(), ms)
		if st.fence != nil {
			st.fence.arriving.Store(false)
		}
		for _, r := range rejected {
			st.giveBack(r.m, r.after)
		}
		if freed > 0 {
			st.tellFreed(freed, bytes)
		}
		st.recovered()
	}
	if done && err != nil {
		st.end(err)
	}
}

// giveBack hands an unstarted message back to the server, to be delivered again
// after the given time. With ack policy none the server takes nothing back, so it
// waits for the Subscription's next call.
func (st *stream) giveBack(m *Msg, after time.Duration) {
	if st.sub.ackNone.Load() {
		st.e.mu.Lock()
		st.e.rules.keep(st.e.now(), m)
		if st.e.dueEarlier() {
			st.e.toNudge = true
		}
		st.e.act()
		return
	}
	st.noteBack(m, after)
	// A failure means that the connection is gone for good; the server
	// redelivers after AckWait.
	if m.NakWithDelay(after) == nil {
		st.sub.counts.handedBack.Add(1)
	}
}

// noteBack keeps, with ack policy all, a message that goes back from being
// covered, unless it was delivered for the last time.
func (st *stream) noteBack(m *Msg, after time.Duration) {
	if st.acks == nil {
		return
	}
	if most := st.sub.config().MaxDeliver; most > 0 && m.Delivered() >= uint64(most) {
		st.acks.settled(m.Sequence())
		return
	}
	st.acks.handBack(m.Sequence(), after)
}

// setLot follows the window: a fraction of it, so that what the rules have not
// heard of never keeps the next pull back. What bounds bytes is told at once,
// because the next pull may depend on the last byte.
func (st *stream) setLot(window int) (freed, bytes int) {
	lot := max(1, min(window/8, (window-len(st.queue.slots))/4))
	if st.set.streaming.prefetchBytes > 0 || st.set.maxBytes > 0 {
		lot = 1
	}
	return st.queue.setLot(lot)
}

func (st *stream) windowSize() int {
	st.window.mu.Lock()
	defer st.window.mu.Unlock()
	return st.window.size
}

func (st *stream) tellFreed(n, bytes int) {
	st.e.mu.Lock()
	st.e.rules.took(st.e.now(), st.claim, n, bytes)
	if st.e.dueEarlier() {
		st.e.toNudge = true
	}
	st.e.act()
}

// resize tells the rules of the window's size.
func (st *stream) resize(n int) {
	if st.size.Load() == int32(n) {
		return
	}
	st.e.mu.Lock()
	n = st.windowSize() // another worker may have changed it meanwhile
	st.size.Store(int32(n))
	st.claim.stand.window = n
	freed, bytes := st.setLot(n)
	st.e.rules.took(st.e.now(), st.claim, freed, bytes)
	if st.e.dueEarlier() {
		st.e.toNudge = true
	}
	st.e.act()
}

// report passes a problem to OnError.
func (st *stream) report(err error) { st.problems.tell(err) }

// end stops the stream for a reason of its own.
func (st *stream) end(err error) {
	st.mu.Lock()
	if st.err == nil {
		st.err = err
	}
	st.mu.Unlock()
	st.halt()
}

// halt ends pulling and hands back what was not started. Workers end with
// what they are handling. It may be called again, also from within.
func (st *stream) halt() {
	st.mu.Lock()
	again := st.halted
	st.halted = true
	st.mu.Unlock()
	if again {
		return
	}
	e := st.e
	e.mu.Lock()
	e.rules.leave(e.now(), st.claim, nil)
	e.act()
	left := st.queue.stop()
	if st.acks != nil {
		for _, h := range left {
			st.noteBack(h.m, 0)
		}
		st.acks.flush()
	}
	st.warnOfLast(left)
	for _, h := range left {
		st.giveBack(h.m, 0)
	}
	close(st.ended)
}

// close stops the housekeeper and waits until what was on the wire has been
// handed back, as long as the connection can tell.
func (st *stream) close() {
	st.halt()
	<-st.ended
	st.group.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = st.group.Wait(ctx)
	if st.acks != nil {
		st.acks.close()
	}
	if st.outbox != nil {
		st.outbox.close()
	}
	e := st.e
	e.mu.Lock()
	for i, o := range e.streams {
		if o == st {
			e.streams = append(e.streams[:i], e.streams[i+1:]...)
			break
		}
	}
	e.mu.Unlock()
	if e.nc.IsConnected() {
		e.awaitQuiet(ctx)
		_ = e.nc.FlushWithContext(ctx)
	}
}

// rounds is how often the housekeeper has to look; 0: never, as where nothing
// is redelivered.
func (st *stream) rounds() time.Duration {
	wait := st.sub.patience()
	switch {
	case wait > 0 && st.queue.lined:
		return max(time.Millisecond, min(wait/4, time.Second))
	case wait > 0 && st.set.streaming.keepAlive:
		return max(time.Millisecond, wait/4)
	}
	return 0
}

// keepHouse keeps held messages alive and opens lines that have waited for
// long enough.
func (st *stream) keepHouse(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	connections := st.sub.counts.reconnects.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-st.renewed:
			if every := st.rounds(); every > 0 {
				tick.Reset(every)
			}
		}
		st.beat.Add(1)
		now := st.e.now()
		if n := st.sub.counts.reconnects.Load(); n != connections || !st.e.nc.IsConnected() {
			connections = n
			st.upset.Store(max(1, int64(now)))
		}
		st.lookAfterLines(now)
		if st.set.streaming.keepAlive && !st.sub.ackNone.Load() {
			st.keepAlive(now)
		}
	}
}

// keepAlive sends in-progress for what has been held for half of AckWait, unless it
// has to come again.
func (st *stream) keepAlive(now at) {
	if st.fence != nil && st.fence.lapsing.Load() {
		return
	}
	before := now - st.sub.patience()/2
	for _, m := range st.queue.overdue(before, now) {
		_ = m.InProgress()
	}
	if st.acks == nil {
		return
	}
	for _, m := range st.acks.overdue(time.Now().Add(-st.sub.patience() / 2)) {
		_ = m.InProgress()
	}
}

// redelivered reports whether the message has been delivered before.
func (m *Msg) redelivered() bool {
	rest, ok := strings.CutPrefix(m.raw.Reply, m.sub.ackPrefix)
	if ok && strings.HasPrefix(rest, "1.") {
		return false
	}
	return m.Delivered() > 1
}

// pace measures how long a worker spends on a message. A fast one is measured
// in runs, so that the clock is not read for each message. A beat ends a run: the
// housekeeper gives one each round, so that a handler that turns slow is noticed.
type pace struct {
	start at
	n     int
	run   int
	beat  int32
}

const (
	// paceEvery is about how often a worker reports, and paceRun the most
	// messages between reports.
	paceEvery = 5 * time.Millisecond
	paceRun   = 32
)

func (p *pace) restart(now at) { p.start, p.n = now, 0 }

// handled notes one message more and reports the time per message when a run
// is over.
func (p *pace) handled(clock func() at, beat int32) (n int, d time.Duration) {
	p.n++
	if p.n < p.run && beat == p.beat {
		return 0, 0
	}
	p.beat = beat
	now := clock()
	n, d = p.n, now-p.start
	p.run = int(max(1, min(paceRun, paceEvery*time.Duration(n)/max(d, 1))))
	p.start, p.n = now, 0
	return n, d
}

// take gets the next message for the worker of a slot and keeps the window fit. When the
// caller's context has ended there is none, even before its end has been noticed
// elsewhere.
func (st *stream) take(s *slot, p *pace) (held, bool) {
	if st.ctx.Err() != nil {
		st.halt()
	}
	h, waited, starved, ok := st.queue.pop(s, st.reads)
	if starved {
		st.resize(st.window.starved())
	}
	if waited {
		p.restart(st.e.now())
	}
	if h.fate != undecided {
		st.e.strange()
	}
	return h, ok
}

// handled is called after each message.
func (st *stream) handled(p *pace, h held) {
	if n, d := p.handled(st.e.now, st.beat.Load()); n > 0 {
		st.resize(st.window.measured(n, d, h.size))
	}
}
