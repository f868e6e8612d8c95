package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// sendWithin is how long after the time in SENDING(n) the POST may begin. A process that took longer to store SENDING(n) takes it back.
	sendWithin = 2 * time.Second
	// dueWithin is how early a time counts as reached. An entry that the server redelivers at a time may arrive before that time by this process's
	// reading of the server's clock.
	dueWithin = time.Millisecond
	// orderedWindow and orderedBytes bound the messages in an ordered lane. These include messages behind one that waits for its retry. At a bound,
	// other sources wait too. Each message is reported in progress twice in a take-over time. For this many, that takes about 1 % of a processor.
	orderedWindow = 1024
	orderedBytes  = 64 << 20
	// maxSteps bounds how often a decision is repeated because the record has changed meanwhile.
	maxSteps = 50
)

// toReceiver is the ToReceiver worker of one receiver. Its pin makes it the only one that sends.
type toReceiver struct {
	*lane
	w       *core
	restart func()      // ends this run of the lane, which restarts with the receiver's present configuration
	order   store.Order // of the receiver when this run started
	asked   sync.Map    // when the outcome of a POST was first requested, by the revision of its SENDING
}

func (w *core) toReceiver(one *lane, restart func()) worker {
	r := w.store.Receivers.Get(one.owner)
	t := &toReceiver{lane: one, w: w, restart: restart, order: r.Order}
	worker := w.entryWorker(store.ToReceiver, t.owner, true, t.deliver)
	worker.opts = append(worker.opts, jetpull.OnPin(t.gate.pinned), jetpull.OnUnpin(func(e jetpull.PinEvent) { t.gate.unpin(e.ID) }))
	if ordered(r.Order) {
		worker.opts = append(worker.opts, jetpull.OrderedBy(sourceToken), jetpull.Prefetch(max(orderedWindow, w.cfg.Concurrency)),
			jetpull.PrefetchBytes(orderedBytes))
	}
	if r.Order == store.OrderReceiver {
		worker.opts = append(worker.opts, jetpull.Concurrency(1))
	}
	return worker
}

// ordered reports whether a receiver gets the messages of one source one after the other.
func ordered(o store.Order) bool { return o != store.OrderNone && o != "" }

// sourceToken returns the source in the subject of an entry, which ends with source and ID.
func sourceToken(m *jetpull.Msg) string {
	rest := m.Subject()[:max(0, strings.LastIndexByte(m.Subject(), '.'))]
	return rest[strings.LastIndexByte(rest, '.')+1:]
}

// deliver processes an entry of the queue as far as possible. If the error is nil, the entry is acknowledged. Otherwise it is redelivered.
func (t *toReceiver) deliver(ctx context.Context, m *jetpull.Msg, meta *jetstream.MsgMetadata, e *store.Entry) error {
	if pin, _ := t.gate.look(); pin == "" {
		// This precedes the check of the order, so that all entries go to the other process in order. Without a delay, a lane that ends would get them
		// back.
		return m.NakWithDelay(turnPause)
	}
	source := ""
	if ordered(t.order) {
		source = t.w.store.Filter(store.ToReceiver, t.owner, e.Source)
	}
	return t.w.inOrder(ctx, m, store.ToReceiver, source, func() error {
		// No result of an entry is stored while a loss of power can still take the entry: the message would be in no queue.
		t.w.crashpoint("before-entry-on-disk")
		if err := t.w.store.EntryOnDisk(ctx, store.ToReceiver, meta.Sequence.Stream); err != nil {
			return err
		}
		// The record is newer than the copy in a redelivered entry.
		return t.w.decide(ctx, e, meta.NumDelivered > 1, func() error { return t.work(ctx, e) })
	})
}

// turnPause is the pause before an entry that must wait for an earlier one of its source is checked again.
const turnPause = 50 * time.Millisecond

// inOrder calls handle for an entry if it is the first in its queue that matches filter, which selects its source. Otherwise it hands the entry back.
// If filter is empty, there is no order.
//
// This keeps the order of a source if deliveries are out of order. Consume handles deliveries in order. But a delivery can be lost, or go to another
// process that stalls or dies. Then it is repeated behind later ones. An entry that is handed back lets the earlier one pass. The acknowledgement of
// an entry is confirmed, so that the check of the next one does not find it.
func (w *core) inOrder(ctx context.Context, m *jetpull.Msg, q store.Queue, filter string, handle func() error) error {
	if filter == "" {
		return handle()
	}
	first, err := w.store.First(ctx, q, filter)
	switch {
	case err != nil:
		return err
	case first != nil && first.Sequence < m.Sequence():
		return m.NakWithDelay(turnPause)
	}
	if err := handle(); err != nil {
		return err
	}
	return m.DoubleAck(ctx)
}

// work processes a message as far as possible, by the status of its record.
func (t *toReceiver) work(ctx context.Context, e *store.Entry) (err error) {
	for {
		switch e.Status {
		case machine.Arrived:
			err = t.attempt(ctx, e)
		case machine.Sending:
			err = t.resolve(ctx, e)
		case machine.Delivered, machine.Responded, machine.Done, machine.Failed:
			return t.w.follow(ctx, e)
		}
		if err != nil || e.Status != machine.Sending {
			return err
		}
	}
}

// attempt waits for the receiver and makes an attempt.
func (t *toReceiver) attempt(ctx context.Context, e *store.Entry) error {
	if wait := e.NextAt.Sub(t.w.store.Now()); !e.NextAt.IsZero() && wait > dueWithin {
		return jetpull.Retry(wait, errors.New("its next attempt is not due yet"))
	}
	p, err := t.gate.acquire(ctx, e.ExpiresAt)
	event := machine.Event{Policy: t.w.policy(p.Receiver, e.Sender), Now: t.w.store.Now(), Stage: machine.ToReceiver}
	switch {
	case errors.Is(err, errExpired):
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.Expired, "it was not sent in time"
	case errors.Is(err, errStopping):
		return jetpull.Retry(0, err)
	case errors.Is(err, errDeleted):
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.ReceiverDeleted, err.Error()
	case err != nil:
		return err
	case p.Order != t.order:
		t.gate.release(p, gate.NotMade)
		t.restart()
		return jetpull.Retry(firstPause, errors.New("its lane begins again in another order"))
	default:
		return t.send(ctx, e, p, event)
	}
	return t.w.apply(ctx, e, event)
}

// send makes an attempt: it stores SENDING(n) before the POST, and the result after it. The caller has acquired the gate.
func (t *toReceiver) send(ctx context.Context, e *store.Entry, p permit, event machine.Event) error {
	r, health := p.Receiver, gate.NotMade
	defer func() { t.gate.release(p, health) }()
	event.Kind = machine.Send
	next, ok := machine.Next(e.Record, event)
	if !ok {
		return store.ErrConflict
	}
	if next.Status != machine.Sending {
		return t.w.advance(ctx, e, next) // no attempt is left
	}
	t.w.crashpoint("before-sending")
	unsent := event
	unsent.Kind, unsent.Attempt = machine.NeverSeen, next.Attempt
	repeated, err := t.w.swap(ctx, e, next)
	if err != nil {
		return err
	}
	t.w.crashpoint("after-sending")
	if !repeatable(r) {
		if err := t.w.store.OnDisk(ctx, e.Revision); err != nil {
			return err
		}
		t.w.crashpoint("after-sending-on-disk")
	}
	if repeated || t.outdated(e, r) {
		return t.conclude(ctx, e, unsent)
	}
	begun, at := time.Now(), t.w.store.Now()
	answer, err := t.w.post(ctx, r, e)
	t.w.crashpoint("after-post")
	if answer == nil && ctx.Err() != nil {
		// The worker was stopped during the POST. The outcome is resolved as after a crash.
		health = gate.Unclear
		return jetpull.Retry(0, context.Cause(ctx))
	}
	took := time.Since(begun)
	v := judge(r, answer, err)
	event, health = v.event, v.health
	event.Now, event.Policy, event.Attempt = t.w.store.Now(), t.w.policy(r, e.Sender), e.Attempt
	event.Note.Time, event.Note.Duration = at, took
	p.failure = event.Note.Error
	if v.gone {
		t.disable(ctx, r)
	}
	t.gate.hold(v.hold)
	t.w.Metrics.attempted(r.Name, answer, err, took)
	t.w.log.Debug("attempt", "node", t.w.Node, "source", e.Source, "message", e.ID, "receiver", r.Name, "attempt", e.Attempt, "code", event.Note.Code,
		"error", event.Note.Error, "trace", traceID(e.Trace))
	return t.conclude(ctx, e, event)
}

// outdated reports whether the POST must not be made any more, because of a change while SENDING was written. Either that took so long that another
// process may have the entry or the window and not know of this POST, or the receiver was reconfigured.
func (t *toReceiver) outdated(e *store.Entry, r store.Receiver) bool {
	now := t.w.store.Receivers.Get(t.owner)
	return t.w.store.Now().Sub(e.SentAt) > sendWithin || now.Revision != r.Revision || r.RateLimit > 0 && !t.gate.fresh()
}

// repeatable reports whether a receiver may get a POST again after a loss of power, as after a crash.
func repeatable(r store.Receiver) bool {
	return r.StatusEndpoint == "" && r.UnknownOutcome != store.AtMostOnce
}

// disable disables a receiver whose endpoint is gone. It does nothing if the receiver was reconfigured after the POST began.
func (t *toReceiver) disable(ctx context.Context, r store.Receiver) {
	r.Disabled = true
	switch err := t.w.store.Receivers.Put(ctx, r); {
	case errors.Is(err, store.ErrConflict):
	case err != nil:
		t.w.log.Warn("a receiver that answered 410 could not be disabled", "receiver", t.owner, "error", err)
	default:
		t.w.cfg.Reporter.Report(ctx, errors.New("a receiver answered 410 and is disabled"), "receiver", t.owner)
		t.w.notify(event{Event: eventDisabled, Receiver: t.owner, Reason: "answered 410"})
	}
}

func (t *toReceiver) conclude(ctx context.Context, e *store.Entry, event machine.Event) error {
	if err := t.w.apply(ctx, e, event); err != nil {
		return err
	}
	t.w.crashpoint("after-result")
	if e.Status == machine.Arrived {
		return jetpull.Retry(max(0, e.NextAt.Sub(event.Now)), errors.New(cmp.Or(event.Note.Error, "it was not sent")))
	}
	return nil
}

// decide calls step, which decides on an entry. If the record has changed meanwhile, decide reads it and calls step again. If read is set, it also
// reads the record before the first call.
func (w *core) decide(ctx context.Context, e *store.Entry, read bool, step func() error) error {
	for range maxSteps {
		if read {
			if done, err := w.load(ctx, e); done || err != nil {
				return err
			}
		}
		if err := step(); !errors.Is(err, store.ErrConflict) {
			return err
		}
		read = true
	}
	return jetpull.Retry(time.Second, fmt.Errorf("the record changed %d times in a row", maxSteps))
}

// apply passes an event to the status machine, and writes the transition.
func (w *core) apply(ctx context.Context, e *store.Entry, event machine.Event) error {
	next, ok := machine.Next(e.Record, event)
	if !ok {
		return store.ErrConflict
	}
	return w.advance(ctx, e, next)
}

// advance writes a transition and takes the next step.
func (w *core) advance(ctx context.Context, e *store.Entry, next machine.Record) error {
	if _, err := w.swap(ctx, e, next); err != nil {
		return err
	}
	if e.Status == machine.Responded || e.Status == machine.Done {
		w.Metrics.responses.WithLabelValues(e.Receiver).Observe(max(0, w.store.Now().Sub(e.ArrivedAt)).Seconds())
	}
	return w.follow(ctx, e)
}

// swap writes a transition. While the store is unavailable, it retries until the worker stops. Otherwise the process would lose the outcome of a
// POST, or the fact that it made none. repeated reports whether it retried.
func (w *core) swap(ctx context.Context, e *store.Entry, next machine.Record) (repeated bool, err error) {
	for ; ; repeated = true {
		v, err := w.store.Swap(e.Versioned, next)(ctx)
		if repeated && errors.Is(err, store.ErrConflict) {
			// The previous write may have been stored, and its answer lost. No other process writes the same SentAt.
			v, err = w.store.Load(ctx, e.Source, e.ID)
			if err == nil && (v.Status != next.Status || v.Attempt != next.Attempt || !v.SentAt.Equal(next.SentAt)) {
				err = store.ErrConflict
			}
		}
		if err == nil {
			e.Versioned = v
		}
		if !errors.Is(err, store.ErrUnavailable) {
			return repeated, err
		}
		if w.ctx.Err() != nil || watch.Sleep(ctx, firstPause) != nil {
			return repeated, err
		}
	}
}

// follow takes the step that a status requires in addition to the record. It can be repeated after a crash. The record is on disk before the step
// begins, and its result is on disk when follow returns.
func (w *core) follow(ctx context.Context, e *store.Entry) error {
	if e.Status == machine.Arrived || e.Status == machine.Sending {
		return nil
	}
	w.crashpoint("before-follow")
	err := w.store.OnDisk(ctx, e.Revision)
	if err != nil {
		return err
	}
	w.crashpoint("before-next")
	switch e.Status {
	case machine.Delivered:
		return w.enqueue(ctx, store.FromReceiver, e)
	case machine.Responded:
		err = w.enqueueCallback(ctx, e)
	case machine.Failed:
		err = w.store.PutFailed(ctx, e)
		if err == nil && !e.Reported {
			err = w.enqueueCallback(ctx, e)
		}
	case machine.Arrived, machine.Sending, machine.Done:
	}
	if err == nil {
		w.store.NotifyEnd(&e.Record)
	}
	return err
}

// enqueueCallback puts a message into the queue to its sender, without the payload.
func (w *core) enqueueCallback(ctx context.Context, e *store.Entry) error {
	callback := *e
	callback.Payload, callback.Headers = nil, nil
	return w.enqueue(ctx, store.ToSender, &callback)
}

// enqueue puts an entry into a queue, waits until it is on disk, and wakes its lane. It wakes the lane even if the server has not confirmed the
// entry, which may be stored.
func (w *core) enqueue(ctx context.Context, q store.Queue, e *store.Entry) error {
	defer w.lanes.wake(q, e.Owner(q))
	seq, err := w.store.Enqueue(q, e)(ctx)
	if err != nil {
		return err
	}
	w.crashpoint("after-next")
	return w.store.EntryOnDisk(ctx, q, seq)
}
