package jetpull

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/lifecycle"
	"github.com/jetpull/jetpull/internal/wire"
)

// engine is the I/O around the rules: it brings them what arrives, and carries
// out what they ask for.
//
// All inboxes deliver into one channel, and one goroutine at a time reads it:
// the caller at the head, so that a message wakes the goroutine that wants it
// and no other. When that caller is content it passes the reading on to the
// next one that waits, or to the caretaker, a goroutine of the engine's own,
// where something can still arrive and nobody waits.
//
// Actions are carried out outside the lock, in the order in which the rules
// asked for them, by whoever finds nobody else doing it.
type engine struct {
	sub     *Subscription
	nc      *nats.Conn
	subject string
	epoch   time.Time
	in      chan *nats.Msg
	timer   *time.Timer
	group   *lifecycle.Group
	notices *notices
	body    []byte // of the request being sent; belongs to who carries out

	mu      sync.Mutex
	rules   *rules
	acting  bool     // somebody carries out actions
	spare   []action // the last batch's memory
	reading bool     // somebody reads
	armed   at       // when the timer fires; 0: it does not
	inboxes map[*nats.Subscription]*inbox
	lastSub *nats.Subscription // of the last message, and its inbox
	lastBox *inbox
	drained []*inbox
	free    []*claim
	slab    []Msg
	hooks   []*settings // of calls with pin callbacks of their own
	closing chan struct{}
	cutOff  chan struct{} // closed by cut, when the connection is closed for good
	cut     func()
	acks    ackInboxes
	streams []*stream
	pong    pong
	quiet   []chan struct{} // closed when nothing drains any more
	absence *time.Timer     // ends the time in which nobody reads
	awaited atomic.Bool     // the only worker there is was woken by the caretaker
	nudged  atomic.Bool     // and not yet attended to
	toNudge bool            // when the lock is given back; see unlock

	// readings of the configuration, and the newest of them that was answered
	readings, lastRead uint64
	taking             chan struct{} // full while what was read is taken over

	silentSeen uint64 // silent pulls that have been looked into
}

// readAtOnce bounds how many messages are taken under one lock.
const readAtOnce = 256

func (s *Subscription) start(first *firstInbox) {
	e := &engine{
		sub: s, nc: s.nc,
		subject: wire.NextSubject(apiPrefix(s.js), s.stream, s.consumer),
		epoch:   time.Now(),
		in:      first.in,
		group:   lifecycle.New(),
		inboxes: map[*nats.Subscription]*inbox{},
		closing: make(chan struct{}),
		cutOff:  make(chan struct{}),
		taking:  make(chan struct{}, 1),
	}
	e.cut = sync.OnceFunc(func() { close(e.cutOff) })
	e.timer = time.AfterFunc(time.Hour, e.nudge)
	e.timer.Stop()
	e.absence = time.AfterFunc(time.Hour, e.endAbsence)
	e.absence.Stop()
	e.notices = newNotices(e.group)
	e.rules = newRules(e.subject, first.base, limitsOf(s.config()), rand.Float64)
	ib := &inbox{subject: first.sub.Subject, prefix: first.base + ".0.", open: true, sub: first.sub}
	e.inboxes[first.sub] = ib
	e.rules.idle = append(e.rules.idle, ib)
	s.engine = e
	changes := s.nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.DRAINING_SUBS, nats.CLOSED)
	e.rules.down = s.nc.IsReconnecting()
	e.group.Go(func(ctx context.Context) { e.watch(ctx, changes) })
}

func limitsOf(cfg *jetstream.ConsumerConfig) limits {
	return limits{
		batch:   max(0, cfg.MaxRequestBatch),
		expires: cfg.MaxRequestExpires,
		bytes:   max(0, cfg.MaxRequestMaxBytes),
		waiting: max(0, cfg.MaxWaiting),
		ackNone: cfg.AckPolicy == jetstream.AckNonePolicy,
		pinned:  cfg.PriorityPolicy == jetstream.PriorityPolicyPinned,
		pinTTL:  cfg.PinnedTTL,
	}
}

func (e *engine) now() at { return time.Since(e.epoch) }

// watch tells the rules what becomes of the connection.
func (e *engine) watch(ctx context.Context, changes chan nats.Status) {
	defer e.nc.RemoveStatusListener(changes)
	for {
		select {
		case <-ctx.Done():
			return
		case s, ok := <-changes:
			if !ok {
				return
			}
			e.connectionChanged(s)
			if len(changes) == 0 {
				e.catchUp()
			}
		}
	}
}

// catchUp makes up for changes that nats.go did not tell: it drops those that a
// listener who is held up has no room for, and the last one may be among them.
func (e *engine) catchUp() {
	e.mu.Lock()
	down := e.rules.down
	e.mu.Unlock()
	switch {
	case e.nc.IsClosed():
		e.connectionChanged(nats.CLOSED)
	case down && e.nc.IsConnected():
		e.connectionChanged(nats.CONNECTED)
	case !down && e.nc.IsReconnecting():
		e.connectionChanged(nats.RECONNECTING)
	}
}

func (e *engine) connectionChanged(s nats.Status) {
	var abandoned []*nats.Subscription
	e.mu.Lock()
	switch s {
	case nats.CONNECTED:
		if e.rules.down {
			e.sub.counts.reconnects.Add(1)
			e.rules.reconnected(e.now())
		}
	case nats.DISCONNECTED, nats.RECONNECTING:
		e.rules.disconnected()
		abandoned = e.draining()
	case nats.DRAINING_SUBS:
		e.rules.die(e.now(), fmt.Errorf("%w: %w", ErrClosed, nats.ErrConnectionDraining))
	case nats.CLOSED:
		e.cut()
		e.rules.die(e.now(), fmt.Errorf("%w: %w", ErrClosed, nats.ErrConnectionClosed))
	}
	e.toNudge = true
	e.act()
	for _, sub := range abandoned {
		_ = sub.Unsubscribe() // it fails if the drain has just ended
	}
}

// draining are the subscriptions of inboxes that are being drained. When the
// connection breaks nothing is on their wire any more, and they have to go before
// it is back: nats.go subscribes a draining subscription again when it
// reconnects and then forgets it without an UNSUB, so that the server would go
// on serving a pull whose inbox nobody listens to. The lock is held.
func (e *engine) draining() (subs []*nats.Subscription) {
	for sub, ib := range e.inboxes {
		if ib.draining {
			subs = append(subs, sub)
		}
	}
	return subs
}

// act carries out what the rules asked for. The lock is held on entry and not
// on return.
func (e *engine) act() {
	if e.acting {
		e.unlock()
		return
	}
	e.acting = true
	for len(e.rules.actions) > 0 {
		batch := e.rules.actions
		e.rules.actions = e.spare[:0]
		e.unlock()
		for i := range batch {
			e.perform(&batch[i])
		}
		clear(batch)
		e.mu.Lock()
		e.spare = batch
	}
	e.acting = false
	e.closedDown()
	e.unlock()
}

func (e *engine) perform(a *action) {
	switch a.kind {
	case actSubscribe:
		e.subscribe(a.inbox)
	case actPull:
		e.sendPull(a.pull)
	case actUnsubscribe:
		e.unsubscribe(a.inbox)
	case actDrain:
		e.drain(a.inbox)
	case actNak:
		// A failure means that the connection is gone for good; the server
		// delivers the message again when its AckWait is over.
		_ = a.msg.Nak()
	case actAck:
		if a.msg.publish(wire.VerbAck) != nil {
			a.msg.settled.Store(false)
		}
	case actWake:
		e.wake(a)
	case actProblem:
		if f := a.claim.stand.onError; f != nil {
			err := a.err
			f(err)
		}
	case actCalm:
		if f := a.claim.stand.onCalm; f != nil {
			f()
		}
	case actPinned, actUnpinned:
		e.tellPin(a)
	case actCheck:
		e.checkConsumer()
	case actWonder:
		e.wonder()
	case actPing:
		e.ping()
	}
}

// wake tells the caller of a claim, or hands over what has come for a standing
// one.
func (e *engine) wake(a *action) {
	if a.ready != nil {
		select {
		case a.ready <- struct{}{}:
		default:
		}
		return
	}
	c := a.claim
	e.mu.Lock()
	ms, done, err := c.got, c.done, c.err
	c.got, c.stand.woken = nil, false
	e.mu.Unlock()
	c.stand.sink(ms, done, err)
}

func (e *engine) subscribe(ib *inbox) {
	sub, err := e.nc.ChanSubscribe(ib.subject, e.in)
	e.mu.Lock()
	defer e.unlock()
	if err != nil {
		ib.open = false
		e.rules.sendFailed(e.now(), ib, fmt.Errorf("jetpull: subscribe to inbox %s: %w", ib.subject, closedError(err)))
		e.toNudge = true
		return
	}
	ib.sub = sub
	e.inboxes[sub] = ib
}

func (e *engine) sendPull(p *pull) {
	sub := p.inbox.sub
	if sub == nil {
		return // it could not be subscribed, and the pull has ended
	}
	if p.inbox.single && p.req.Heartbeat == 0 && p.req.MaxBytes == 0 {
		_ = sub.AutoUnsubscribe(p.req.Batch + 1)
	}
	e.sub.refusals.mark(e.nc)
	var err error
	if p.carrier != nil {
		e.body = wire.AppendNext(e.body[:0], &p.req)
		err = e.nc.PublishRequest(p.carrier.raw.Reply, p.reply, e.body)
	} else {
		e.body = p.req.Append(e.body[:0])
		err = e.nc.PublishRequest(e.subject, p.reply, e.body)
	}
	if err != nil {
		if p.carrier != nil {
			p.carrier.settled.Store(false)
		}
		e.mu.Lock()
		if p.carrier == nil && e.passes(err) {
			e.rules.notSent(e.now(), p.inbox)
		} else {
			e.rules.sendFailed(e.now(), p.inbox, fmt.Errorf("jetpull: pull on %s: %w", e.subject, closedError(err)))
		}
		e.toNudge = true
		e.unlock()
	}
}

// passes reports whether a publish failed for a reason that goes by: the
// connection is broken, which the engine is told of only after, and comes back.
func (e *engine) passes(err error) bool {
	for _, final := range []error{nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrBadSubject, nats.ErrMaxPayload} {
		if errors.Is(err, final) {
			return false
		}
	}
	return !e.nc.IsClosed()
}

func (e *engine) unsubscribe(ib *inbox) {
	if ib.sub == nil {
		return
	}
	// It fails only on a closed connection, where nothing is subscribed.
	_ = ib.sub.Unsubscribe()
	e.mu.Lock()
	e.forget(ib)
	e.mu.Unlock()
}

func (e *engine) forget(ib *inbox) {
	delete(e.inboxes, ib.sub)
	if e.lastBox == ib {
		e.lastSub, e.lastBox = nil, nil
	}
}

// drain unsubscribes ib and, a round trip later, tells the rules that all that
// was on the wire has arrived.
func (e *engine) drain(ib *inbox) {
	if ib.sub != nil && !e.nc.IsConnected() {
		_ = ib.sub.Unsubscribe() // see draining
		e.wasDrained(ib)
		return
	}
	if ib.sub == nil || ib.sub.Drain() != nil {
		e.wasDrained(ib)
		return
	}
	started := e.group.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		// Without an answer the connection is lost, and with it the inbox.
		_ = e.nc.FlushWithContext(ctx)
		e.wasDrained(ib)
	})
	if !started {
		e.wasDrained(ib)
	}
}

// wasDrained leaves the news to the reader, who first takes what has arrived.
func (e *engine) wasDrained(ib *inbox) {
	e.mu.Lock()
	e.drained = append(e.drained, ib)
	e.ensureReader()
	e.mu.Unlock()
	e.nudge()
}

// goneError is what a failed look at the consumer says: nil unless it is gone.
func goneError(err error, s *Subscription) error {
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: consumer %q on stream %q: %w", ErrConsumerDeleted, s.consumer, s.stream, err)
	}
	return nil
}

// take brings one frame to the rules. The lock is held.
func (e *engine) take(now at, raw *nats.Msg) {
	if raw == nudgeFrame {
		return
	}
	ib := e.lastBox
	if raw.Sub != e.lastSub {
		ib = e.inboxes[raw.Sub]
		e.lastSub, e.lastBox = raw.Sub, ib
	}
	if raw.Reply == "" && ib != nil && strings.HasPrefix(raw.Subject, ib.prefix) {
		if s, ok := wire.ParseStatus(raw.Header); ok {
			e.rules.status(now, ib, raw.Subject[strings.LastIndexByte(raw.Subject, '.')+1:], classify(s))
		}
		return
	}
	m := e.newMsg(raw, ib)
	if ib == nil {
		e.rules.do(action{kind: actNak, msg: m})
		return
	}
	pin := ""
	if e.rules.limits.pinned {
		pin = wire.PinID(raw.Header)
	}
	e.rules.data(now, ib, m, m.size(), pin)
}

// close ends everything; see Subscription.Close.
func (e *engine) close(ctx context.Context) error {
	e.mu.Lock()
	if !e.rules.closed {
		e.rules.shut(e.now())
		e.ensureReader()
		e.toNudge = true
	}
	e.act()
	e.acks.close()
	select {
	case <-e.closing:
	case <-ctx.Done():
		// The rest takes as long as an inbox may take to drain, at most.
		e.group.Go(func(context.Context) {
			<-e.closing
			e.stopTimers()
			e.group.Stop()
		})
		return fmt.Errorf("jetpull: close: what is on the wire has not been handed back: %w", ctx.Err())
	}
	e.stopTimers()
	e.mu.Lock()
	handedBack := e.rules.stats.handedBack + e.sub.counts.handedBack.Load()
	e.mu.Unlock()
	if handedBack > 0 && e.nc.IsConnected() {
		if _, ok := ctx.Deadline(); !ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
		}
		_ = e.nc.FlushWithContext(ctx)
	}
	e.group.Stop()
	if err := e.group.Wait(ctx); err != nil {
		return fmt.Errorf("jetpull: close: %w", err)
	}
	return nil
}

// stopTimers lets go of an engine that nobody reads for any more; a timer that
// is still to fire would keep it in memory until then.
func (e *engine) stopTimers() {
	e.timer.Stop()
	e.absence.Stop()
}
