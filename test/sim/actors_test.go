package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// actor is one goroutine of a process, which uses one call over and over.
type actor struct {
	kind string
	seed uint64
}

// The kinds of actors.
const (
	useNext     = "next"
	useFetch    = "fetch"
	useMessages = "messages"
	useConsume  = "consume"
)

// player is an actor at work.
type player struct {
	*process
	actor
	rng   *rand.Rand
	extra *rand.Rand // of what was added later, so that rng goes on drawing the same
	tight bool       // it holds few messages for longer than their AckWait
}

// deadlineSlack is how much later than its deadline a call may return. Time stands still in a bubble while anything can run.
const deadlineSlack = time.Millisecond

// play uses the client until ctx ends or the Subscription is closed.
func (a *player) play(ctx context.Context) {
	for ctx.Err() == nil {
		var goOn bool
		switch a.kind {
		case useNext:
			goOn = a.next(ctx)
		case useFetch:
			goOn = a.fetch(ctx)
		case useMessages:
			goOn = a.messages(ctx)
		default:
			goOn = a.consume(ctx)
		}
		if !goOn || !rest(ctx, between(a.rng, time.Millisecond, 200*time.Millisecond)) {
			return
		}
	}
}

// rest waits, and reports whether it was left in peace.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// pullCall is one Next or Fetch about to be made.
type pullCall struct {
	opts    []jetpull.NextOption
	noWait  bool
	wait    time.Duration
	limited bool // by MaxBytes
	batch   int
}

// drawCall draws the options that Next and Fetch share.
func (a *player) drawCall() pullCall {
	c := pullCall{wait: between(a.rng, 20*time.Millisecond, 6*time.Second), batch: 1}
	if oneIn(a.rng, 5) {
		c.noWait = true
		c.opts = append(c.opts, jetpull.NoWait())
	}
	c.opts = append(c.opts, jetpull.MaxWait(c.wait))
	if oneIn(a.rng, 6) && c.wait > 2*time.Second && !c.noWait {
		c.opts = append(c.opts, jetpull.Heartbeat(500*time.Millisecond))
	}
	if oneIn(a.rng, 8) {
		c.limited = true
		c.opts = append(c.opts, jetpull.MaxBytes(100+a.rng.IntN(4000)))
	}
	c.opts = append(c.opts, as[jetpull.NextOption](a.drawTerms())...)
	return c
}

// sometimesCancelled ends a context by itself now and then.
func (a *player) sometimesCancelled(ctx context.Context, one int, low, high time.Duration) (context.Context, context.CancelFunc) {
	if oneIn(a.rng, one) {
		return context.WithTimeoutCause(ctx, between(a.rng, low, high), errEnough)
	}
	return context.WithCancel(ctx)
}

var errEnough = errors.New("the actor has had enough")

// next makes one Next, with whatever follows by AckNext.
func (a *player) next(ctx context.Context) bool {
	c := a.drawCall()
	ctx, cancel := a.sometimesCancelled(ctx, 4, 0, c.wait)
	defer cancel()
	from := a.now()
	m, err := a.sub.Next(ctx, c.opts...)
	a.checkEnd(ctx, "Next", from, c)
	for {
		if (m == nil) == (err == nil) {
			a.wrong("%s: Next returned message %v and error %v", a.name, m, err)
		}
		if m == nil {
			return a.allowed(ctx, "Next", c, err)
		}
		h := a.handed(a.name, nil, m)
		if a.plan.ackNone() || !oneIn(a.rng, 3) {
			a.treat(ctx, m, h)
			return true
		}
		c.noWait, c.limited, c.opts = false, false, append(as[jetpull.NextOption](a.drawTerms()), jetpull.MaxWait(c.wait))
		a.settled(h, acked)
		from = a.now()
		m, err = m.AckNext(ctx, c.opts...)
		a.checkEnd(ctx, "AckNext", from, c)
		if err != nil && errors.Is(err, jetpull.ErrClosed) {
			a.unsettled(h)
		}
	}
}

// fetch makes one Fetch.
func (a *player) fetch(ctx context.Context) bool {
	c := a.drawCall()
	c.batch = 1 + a.rng.IntN(20)
	opts := as[jetpull.FetchOption](c.opts)
	if !c.noWait && oneIn(a.rng, 3) {
		opts = append(opts, jetpull.FillBatch())
	}
	ctx, cancel := a.sometimesCancelled(ctx, 4, 0, c.wait)
	defer cancel()
	from := a.now()
	ms, err := a.sub.Fetch(ctx, c.batch, opts...)
	a.checkEnd(ctx, "Fetch", from, c)
	if (len(ms) == 0) == (err == nil) {
		a.wrong("%s: Fetch returned %d messages and error %v", a.name, len(ms), err)
	}
	if len(ms) > c.batch {
		a.wrong("%s: Fetch(%d) returned %d messages", a.name, c.batch, len(ms))
	}
	hs := make([]*handing, len(ms))
	for i, m := range ms {
		hs[i] = a.handed(a.name, nil, m)
	}
	if len(ms) > 0 && !a.plan.ackNone() && oneIn(a.rng, 6) {
		a.confirm(ms, hs)
		return true
	}
	for i, m := range ms {
		a.treat(ctx, m, hs[i])
	}
	return len(ms) > 0 || a.allowed(ctx, "Fetch", c, err)
}

// confirm acknowledges a batch at once and waits for the server's word.
func (a *player) confirm(ms []*jetpull.Msg, hs []*handing) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	for _, h := range hs {
		a.settled(h, acked)
	}
	from := a.now()
	err := jetpull.ConfirmAcks(ctx, ms...)
	a.called(a.name, from)
	if took := a.now() - from; took > 3*time.Second+deadlineSlack {
		a.wrong("%s: ConfirmAcks took %v of 3s", a.name, took)
	}
	if err != nil {
		// Which of them the server has got nobody can say.
		for _, h := range hs {
			a.unsettled(h)
		}
	}
}

// checkEnd notes a call, and whether it went on past its deadline or its context.
func (a *player) checkEnd(ctx context.Context, what string, from time.Duration, c pullCall) {
	a.called(a.name, from)
	most := c.wait
	if until, ok := ctx.Deadline(); ok {
		most = min(most, until.Sub(a.start)-from)
	}
	if took := a.now() - from; took > most+deadlineSlack {
		a.wrong("%s: %s took %v of %v", a.name, what, took, most)
	}
}

// allowed reports whether an actor goes on after a call that returned nothing, and notes errors that the call should not have returned.
func (a *player) allowed(ctx context.Context, what string, c pullCall, err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, jetpull.ErrClosed):
		if !a.closing.Load() {
			a.wrong("%s: %s: %v", a.name, what, err)
		}
		return false
	case errors.Is(err, jetpull.ErrConsumerDeleted) && a.deleted(a.now()-c.wait):
		return true
	case errors.Is(err, jetpull.ErrTimeout), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return true
	case c.noWait && errors.Is(err, jetpull.ErrNoMessages):
		return true
	case c.limited && errors.Is(err, jetpull.ErrMaxBytes):
		return true
	case errors.Is(err, jetpull.ErrLimitExceeded):
		a.wasRefused(refusal{life: a.name, at: a.now(), what: what, call: c})
		return true
	}
	a.wrong("%s: %s: %v", a.name, what, err)
	return true
}

// drawTerms draws what a call says to a priority group; the group itself is a default of the Subscription.
func (a *player) drawTerms() []jetpull.PullOption {
	switch a.plan.consumer.PriorityPolicy {
	case jetstream.PriorityPolicyOverflow:
		if oneIn(a.rng, 2) {
			return []jetpull.PullOption{jetpull.MinPending(int64(1 + a.rng.IntN(10)))}
		}
		if oneIn(a.rng, 2) {
			return []jetpull.PullOption{jetpull.MinAckPending(int64(1 + a.rng.IntN(10)))}
		}
	case jetstream.PriorityPolicyPrioritized:
		return []jetpull.PullOption{jetpull.Priority(a.rng.IntN(4))}
	}
	return nil
}

// as are options as those of a call that can use them.
func as[O, P jetpull.SubscribeOption](opts []P) (of []O) {
	for _, o := range opts {
		of = append(of, any(o).(O))
	}
	return of
}

// treat works on a message that Next, Fetch or Messages returned, and settles it or does not.
func (a *player) treat(ctx context.Context, m *jetpull.Msg, h *handing) {
	if oneIn(a.rng, 3) {
		rest(ctx, between(a.rng, 0, 30*time.Millisecond))
	}
	if a.plan.ackNone() {
		return
	}
	verb, act := acked, m.Ack
	switch n := a.rng.IntN(100); {
	case n < 6:
		verb, act = naked, m.Nak
	case n < 10:
		verb, act = naked, func() error { return m.NakWithDelay(between(a.rng, time.Millisecond, 2*time.Second)) }
	case n < 12:
		verb, act = termed, m.Term
	case n < 16 && a.plan.consumer.MaxDeliver == 0:
		return // forgotten
	case n < 22:
		act = func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			return m.DoubleAck(ctx)
		}
	}
	a.settled(h, verb)
	if err := act(); err != nil {
		a.unsettled(h)
		if !errors.Is(err, jetpull.ErrClosed) && !errors.Is(err, jetpull.ErrTimeout) && !errors.Is(err, jetpull.ErrNoResponders) {
			a.wrong("%s: %s of %v: %v", a.name, verb, h.deliveryID, err)
		}
	}
}

// streamOptions draws the options that Messages and Consume share.
func (a *player) streamOptions(r *run) []jetpull.MessagesOption {
	opts := as[jetpull.MessagesOption](a.drawTerms())
	r.keepAlive = !oneIn(a.rng, pick(a.extra, 2, 20)) && !a.tight
	if !r.keepAlive && !a.plan.ackNone() {
		opts = append(opts, jetpull.KeepAlive(false))
	}
	if oneIn(a.rng, 4) {
		r.prefetch = 1 + a.rng.IntN(pick(a.extra, 4, 30))
	}
	if a.tight {
		r.prefetch = 2
	}
	if r.prefetch > 0 {
		opts = append(opts, jetpull.Prefetch(r.prefetch))
	}
	if oneIn(a.rng, 8) {
		opts = append(opts, jetpull.PrefetchBytes(200+a.rng.IntN(8000)))
	}
	if r.awaits = oneIn(a.extra, 2); r.awaits {
		opts = append(opts, jetpull.AwaitConsumer())
	}
	return opts
}

// messages runs one loop over Messages, which ends by break or by its context.
func (a *player) messages(ctx context.Context) bool {
	ctx, cancel := a.sometimesCancelled(ctx, 2, 0, a.plan.active/2)
	defer cancel()
	most := pick(a.rng, 1, 3, 20, 1000)
	r := &run{life: a.name, kind: useMessages}
	opts := a.streamOptions(r)
	a.began(r)
	defer context.AfterFunc(ctx, func() { a.stopping(a.name, r) })()
	goOn := true
	for m, err := range a.sub.Messages(ctx, opts...) {
		if (m == nil) == (err == nil) {
			a.wrong("%s: Messages yielded message %v and error %v", a.name, m, err)
		}
		if err != nil {
			goOn = a.allowedRun(ctx, "Messages", r, err)
			a.stopping(a.name, r)
			continue
		}
		h := a.handed(a.name, r, m)
		a.treat(ctx, m, h)
		a.returned(h)
		if most--; most == 0 {
			a.stopping(a.name, r)
			break
		}
	}
	a.ended(r)
	a.checkStop("Messages", r)
	return goOn
}

// allowedRun is allowed for the end of a stream.
func (a *player) allowedRun(ctx context.Context, what string, r *run, err error) bool {
	if errors.Is(err, jetpull.ErrConsumerDeleted) {
		r.gone = true
		if r.awaits || !a.deleted(r.from) {
			a.wrong("%s: %s, which awaits its consumer: %t, ended: %v", a.name, what, r.awaits, err)
		}
		return true
	}
	tooFew := func(c jetstream.ConsumerConfig) bool { return c.MaxDeliver > 0 && c.MaxDeliver < r.most }
	if errors.Is(err, jetpull.ErrInvalidOption) && slices.ContainsFunc(a.plan.all(), tooFew) {
		return true
	}
	if r.dead && errors.Is(err, jetpull.ErrNoResponders) {
		return true
	}
	return a.allowed(ctx, what, pullCall{}, err)
}

// stopSlack is how long Messages may take to hand back what is on the wire when the server does not answer.
const stopSlack = 6 * time.Second

// drainGrace is how long after its DrainTimeout Consume has returned.
const drainGrace = time.Second

// deadWait is how long Consume looks for the stream of the dead letters when it begins.
const deadWait = 5 * time.Second

// checkStop checks that a stream ended soon after it was stopped.
func (a *player) checkStop(what string, r *run) {
	most := stopSlack + handlerMost
	if r.kind == useConsume {
		most = r.drain + drainGrace + deadlineSlack
	}
	until := r.stopped
	if r.dead { // it began with a look for the stream of the dead letters
		until = max(until, r.from+deadWait)
	}
	if r.stopped > 0 && r.end > until+most {
		a.wrong("%s: %s was told to end at %v and ended at %v", a.name, what, r.stopped, r.end)
	}
}
