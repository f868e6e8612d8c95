package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// grace is added to a receiver's timeout before a POST of a process that died counts as over.
	grace = time.Second
	// heldPause is the wait for another entry of the same message, which is being worked on.
	heldPause = time.Second
	// heldFor is how long what is known of a message outlives its time, at least, where more than leastSweep are known.
	heldFor    = time.Hour
	leastSweep = 1000
	// orderedWindow and orderedBytes bound what an ordered lane holds. The messages behind one that waits for its next try are a
	// part of it, and when it is full, the other sources wait too. Each is reported in progress twice in a take-over time, which
	// for this many takes about 1 % of a processor.
	orderedWindow = 1024
	orderedBytes  = 64 << 20
	// maxSteps bounds how often a record is decided on again because others were faster.
	maxSteps = 50
)

func itoa(n int) string { return strconv.Itoa(n) }

// toReceiver is the ToReceiver worker of one receiver. Its pin makes it the only one that sends.
type toReceiver struct {
	w    *core
	name string
	mode string // the order that the lane keeps
	gate *gate

	turns turns

	mu      sync.Mutex
	held    map[string]*held
	sweepAt int // as many as this
}

// held is what this process knows of a message that waits for its next try, or is in work.
type held struct {
	v    store.Versioned
	busy bool
	due  time.Time // not before; zero: not known
	safe time.Time // when a POST of an unknown outcome is over; zero: not known
	asks int
	// heard is what became of the attempt that began at heardOf, by the record; it may not be written down yet.
	heard   machine.Event
	heardOf time.Time
}

// hear notes what became of an attempt before that is written down: the store may be away, and what is known need not be
// found out again.
func (h *held) hear(next *machine.Record, event machine.Event) {
	h.heard, h.heardOf = event, next.SentAt
}

func (w *core) toReceiver(name string) worker {
	r, _ := w.store.Receiver(name)
	worker := w.newWorker(w.store.StreamName(store.ToReceiver), w.store.Durable(store.ToReceiver, name), w.store.QueueFilter(store.ToReceiver, name), true)
	t := &toReceiver{w: w, name: name, mode: string(r.Order), gate: w.gate(name), turns: turns{w: w}}
	worker.handle, worker.started, worker.ended = t.handle, t.started, t.ended
	worker.mode = string(r.Order)
	if ordered(r) {
		worker.opts = append(worker.opts, jetpull.OrderedBy(sourceToken), jetpull.Prefetch(max(orderedWindow, w.cfg.Concurrency)), jetpull.PrefetchBytes(orderedBytes))
	}
	if r.Order == store.OrderReceiver {
		worker.opts = append(worker.opts, jetpull.Concurrency(1))
	}
	return worker
}

// sourceToken is the source in the subject of an entry, which ends with source and ID.
func sourceToken(m *jetpull.Msg) string {
	rest := m.Subject()[:max(0, strings.LastIndexByte(m.Subject(), '.'))]
	return rest[strings.LastIndexByte(rest, '.')+1:]
}

func (t *toReceiver) started() {
	t.turns.started()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held, t.sweepAt = map[string]*held{}, leastSweep
}

// ended hands the window over.
func (t *toReceiver) ended() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.w.ctx), t.w.cfg.Takeover)
	defer cancel()
	t.gate.leave(ctx)
}

// hold takes a message into work; false: another entry of it is.
func (t *toReceiver) hold(key string) (*held, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held[key]
	if h == nil {
		h = &held{}
		t.held[key] = h
		if len(t.held) >= t.sweepAt {
			t.sweepLocked()
		}
	}
	if h.busy {
		return nil, false
	}
	h.busy = true
	return h, true
}

// sweepLocked forgets what nobody has come back to: a message whose time to live is over does not come again. Of one that does
// the record says enough.
func (t *toReceiver) sweepLocked() {
	maps.DeleteFunc(t.held, func(_ string, h *held) bool {
		return !h.busy && time.Since(h.due) > heldFor && time.Since(h.safe) > heldFor
	})
	t.sweepAt = max(leastSweep, 2*len(t.held))
}

func (t *toReceiver) letGo(key string, h *held, forget bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.busy = false
	if forget && t.held[key] == h {
		delete(t.held, key)
	}
}

func (t *toReceiver) handle(ctx context.Context, m *jetpull.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	e, err := store.DecodeEntry(m.Data())
	if err != nil {
		t.w.cfg.Reporter.Report(ctx, err, "subject", m.Subject())
		return t.w.store.Quarantine(ctx, m.Subject(), strconv.FormatUint(meta.Sequence.Stream, 10), m.Data(), err)
	}
	key := e.Source + "\x00" + e.ID
	h, ok := t.hold(key)
	if !ok {
		return jetpull.Retry(heldPause, errors.New("another entry of the message is in work"))
	}
	settled := false
	defer func() { t.letGo(key, h, settled) }()
	if h.v.Revision > e.Revision {
		e.Versioned = h.v
	}
	r, _ := t.w.store.Receiver(t.name)
	if string(r.Order) != t.mode {
		return jetpull.Retry(firstPause, errors.New("its lane begins again in another order"))
	}
	inOrder := ordered(r)
	if inOrder {
		turn, err := t.turns.mine(ctx, m, store.ToReceiver, t.w.store.SourceFilter(store.ToReceiver, t.name, e.Source), e.Source)
		if err != nil || !turn {
			return err
		}
	}
	err = t.work(ctx, &e, h)
	h.v = e.Versioned
	if err == nil {
		settled = true
		if inOrder {
			t.turns.settle(e.Source, meta.Sequence.Stream)
		}
	}
	return err
}

// work takes a message as far as it gets. Each step begins with the record's status; a conflict reads it again.
func (t *toReceiver) work(ctx context.Context, e *store.Entry, h *held) error {
	for range maxSteps {
		var err error
		switch e.Status {
		case machine.Arrived:
			err = t.arrived(ctx, e, h)
		case machine.Sending:
			err = t.resolve(ctx, e, h)
		case machine.Delivered, machine.Responded, machine.Done, machine.Failed:
			return t.w.again(t.w.follow(ctx, e))
		}
		if errors.Is(err, store.ErrConflict) {
			v, loadErr := t.w.store.Load(ctx, e.Source, e.ID)
			if errors.Is(loadErr, store.ErrNotFound) {
				// Its tombstone has expired: it was done long ago.
				return nil
			}
			if loadErr != nil {
				return t.w.again(loadErr)
			}
			if v.Status == machine.Failed && v.Failure.Reason == machine.Expired {
				if _, _, err := t.w.store.Waiting(ctx, store.ToReceiver, e.Receiver, e.Source, e.ID); errors.Is(err, store.ErrNotFound) {
					// Its reminder came while this lane held the entry: it is on the list, or was taken off it.
					return nil
				}
			}
			e.Versioned, h.safe = v, time.Time{}
			continue
		}
		if err != nil {
			return t.w.again(err)
		}
		if e.Status.Ended() || e.Status == machine.Delivered || e.Status == machine.Responded {
			return nil
		}
	}
	return jetpull.Retry(heldPause, fmt.Errorf("the record changed %d times in a row", maxSteps))
}

// again has a message handled again soon if its error does not say when.
func (w *core) again(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return jetpull.Retry(firstPause, err)
	}
	return err
}

// later has a message handled again after a pause, and not before.
func (h *held) later(d time.Duration, err error) error {
	h.due = time.Now().Add(d)
	return jetpull.Retry(d, err)
}

// arrived waits for the receiver and makes an attempt.
func (t *toReceiver) arrived(ctx context.Context, e *store.Entry, h *held) error {
	if h.due.IsZero() && !e.NextAt.IsZero() {
		// The clock of the server may have been set since, so no longer than the pause was.
		h.due = time.Now().Add(min(max(0, e.NextAt.Sub(t.w.store.Now())), e.Pause))
	}
	if wait := time.Until(h.due); wait > time.Millisecond {
		return jetpull.Retry(wait, errors.New("its next attempt is not due yet"))
	}
	h.due = time.Time{}
	p, err := t.gate.acquire(ctx, e.ExpiresAt)
	event := machine.Event{Policy: t.w.policy(p.Receiver, e.Sender), Now: t.w.store.Now(), Stage: machine.ToReceiver}
	switch {
	case errors.Is(err, errExpired):
		event.Kind, event.Error = machine.Expire, "it was not sent in time"
	case errors.Is(err, errStopping):
		return jetpull.Retry(0, err)
	case errors.Is(err, errDeleted):
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.ReceiverDeleted, "the receiver was deleted"
	case errors.Is(err, store.ErrConflict), errors.Is(err, errBehind):
		return jetpull.Retry(firstPause, err)
	case err != nil:
		return err
	default:
		return t.send(ctx, e, h, p, event)
	}
	next, ok := machine.Next(e.Record, event)
	if !ok {
		return store.ErrConflict
	}
	return t.w.advance(ctx, e, next)
}

// send makes an attempt: SENDING(n) is stored before the POST, and its result after it. The gate was acquired.
func (t *toReceiver) send(ctx context.Context, e *store.Entry, h *held, p permit, event machine.Event) error {
	r, verdict := p.Receiver, noPOST
	defer func() { t.gate.release(p, verdict) }()
	event.Kind = machine.Send
	if h.heard.Kind == machine.NeverSeen && !h.heardOf.IsZero() {
		event.Now = h.heardOf // the same write again: it may have been stored, and its answer lost
	}
	next, ok := machine.Next(e.Record, event)
	if !ok {
		return store.ErrConflict
	}
	t.w.crashpoint("before-sending")
	unsent := event
	unsent.Kind, unsent.Attempt = machine.NeverSeen, next.Attempt
	h.hear(&next, unsent)
	if err := t.w.advance(ctx, e, next); err != nil || e.Status != machine.Sending {
		return err
	}
	t.w.crashpoint("after-sending")
	if now, _ := t.w.store.Receiver(t.name); now.Revision != r.Revision || r.RateLimit > 0 && !t.gate.fresh() {
		// While SENDING was written the receiver was configured anew; or that took so long that another process may count the
		// window by now, and it would not know of this POST.
		return t.conclude(ctx, e, h, unsent)
	}
	h.heardOf = time.Time{}
	begun := time.Now()
	answer, err := t.w.post(ctx, r, e)
	t.w.crashpoint("after-post")
	event = t.outcome(e, r, answer, err, begun)
	if answer == nil && ctx.Err() != nil {
		// The worker was cut. What became of the POST is found out as after a crash.
		verdict = neither
		return jetpull.Retry(0, context.Cause(ctx))
	}
	verdict = t.judge(ctx, r, answer, err)
	t.w.cfg.Metrics.attempted(r.Name, answer, err, time.Since(begun))
	t.w.log.Debug("attempt", "node", t.w.node, "source", e.Source, "message", e.ID, "receiver", r.Name, "attempt", e.Attempt, "code", event.Note.Code, "error", event.Note.Error, "trace", traceID(e.Trace))
	h.safe = begun.Add(r.Timeout)
	h.hear(&e.Record, event)
	return t.conclude(ctx, e, h, event)
}

// conclude writes down what became of an attempt.
func (t *toReceiver) conclude(ctx context.Context, e *store.Entry, h *held, event machine.Event) error {
	next, ok := machine.Next(e.Record, event)
	if !ok {
		return store.ErrConflict
	}
	if err := t.w.advance(ctx, e, next); err != nil {
		return err
	}
	t.w.crashpoint("after-result")
	if e.Status == machine.Arrived {
		return h.later(max(0, e.NextAt.Sub(event.Now)), errors.New(cmp.Or(event.Note.Error, "it was not sent")))
	}
	return nil
}

// outcome is the event that a POST ended with.
func (t *toReceiver) outcome(e *store.Entry, r store.Receiver, answer *webhook.Answer, err error, begun time.Time) machine.Event {
	now := t.w.store.Now()
	event := machine.Event{
		Kind: machine.Answered, Now: now, Policy: t.w.policy(r, e.Sender), Attempt: e.Attempt,
		Note: machine.Attempt{Time: now.Add(-time.Since(begun)), Duration: time.Since(begun)},
	}
	if answer == nil {
		event.Outcome, event.Note.Error = machine.Retry, err.Error()
		if !errors.Is(err, webhook.ErrNotSent) {
			event.Kind = machine.Lost
		}
		return event
	}
	event.Note.Code = answer.Code
	if unknown(answer) {
		event.Kind, event.Outcome, event.Note.Error = machine.Lost, machine.Retry, fmt.Sprintf("the answer broke off: %v", answer.Broken)
		return event
	}
	event.Outcome = machine.Classify(answer.Code, r.StatusEndpoint != "")
	switch event.Outcome {
	case machine.Result:
		event.Response, event.Truncated = response(answer), answer.Truncated
		if answer.Code == http.StatusAccepted {
			event.Response, event.Truncated = nil, false
		}
	case machine.Retry, machine.Refused:
		event.Note.Error = fmt.Sprintf("answered with status %d: %.200q", answer.Code, answer.Body)
		event.RetryAfter = retryAfter(answer.Header)
	case machine.Pending:
	}
	return event
}

// judge says what a POST tells of the receiver, and does what it asks for.
func (t *toReceiver) judge(ctx context.Context, r store.Receiver, answer *webhook.Answer, err error) health {
	if answer == nil {
		if errors.Is(err, webhook.ErrForbiddenAddress) {
			return neither
		}
		return unwell
	}
	switch answer.Code {
	case http.StatusGone:
		t.disable(ctx, r)
		return neither
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if d := retryAfter(answer.Header); d > 0 {
			t.gate.hold(d)
			return neither
		}
	}
	if answer.Code >= http.StatusInternalServerError {
		return unwell
	}
	return well
}

// disable stops sending to a receiver whose endpoint is gone, until somebody configures it again: if that has happened since the
// POST began, its answer is of no concern.
func (t *toReceiver) disable(ctx context.Context, r store.Receiver) {
	r.Disabled = true
	switch err := t.w.store.PutReceiver(ctx, r); {
	case errors.Is(err, store.ErrConflict):
	case err != nil:
		t.w.log.Warn("a receiver that answered 410 could not be disabled", "receiver", t.name, "error", err)
	default:
		t.w.cfg.Reporter.Report(ctx, errors.New("a receiver answered 410 and is disabled"), "receiver", t.name)
	}
}

// resolve finds out what became of a POST that has no answer.
func (t *toReceiver) resolve(ctx context.Context, e *store.Entry, h *held) error {
	r, err := t.w.receiverNow(ctx, t.name)
	if err != nil && !errors.Is(err, errDeleted) {
		return jetpull.Retry(firstPause, err)
	}
	deleted := err != nil
	if !h.heardOf.IsZero() && h.heardOf.Equal(e.SentAt) && !e.Unknown {
		h.heard.Policy = t.w.policy(r, e.Sender)
		return t.conclude(ctx, e, h, h.heard)
	}
	if h.safe.IsZero() {
		// The process that sent it died, at the latest now, and a POST ends within its timeout. The time in the record is when
		// it was about to be sent.
		h.safe = time.Now().Add(r.Timeout + grace)
	}
	event := machine.Event{Policy: t.w.policy(r, e.Sender), Attempt: e.Attempt, Stage: machine.ToReceiver}
	wait := time.Until(h.safe)
	if r.StatusEndpoint != "" && !deleted {
		settled, err := t.ask(ctx, e, h, r, &event)
		if !settled {
			return err
		}
	} else {
		if wait > 0 {
			return h.later(wait, errors.New("a POST without an answer may still be in flight"))
		}
		event.Kind, event.Note = machine.Lost, machine.Attempt{Time: e.SentAt, Error: "the process that sent it ended"}
		if e.Unknown {
			// It could be asked about when it was sent, and cannot be any more.
			event.Kind, event.Reason, event.Error = machine.GiveUp, machine.UnknownOutcome, "the receiver has no status endpoint any more"
		}
	}
	event.Now = t.w.store.Now()
	next, ok := machine.Next(e.Record, event)
	if !ok {
		return store.ErrConflict
	}
	if err := t.w.advance(ctx, e, next); err != nil {
		return err
	}
	h.asks, h.safe = 0, time.Time{}
	if e.Status == machine.Arrived {
		return h.later(max(0, e.NextAt.Sub(event.Now)), errors.New("the receiver has not seen it"))
	}
	return nil
}

// ask asks the status endpoint; false: it has to be asked again, and err says when.
func (t *toReceiver) ask(ctx context.Context, e *store.Entry, h *held, r store.Receiver, event *machine.Event) (settled bool, err error) {
	answer, err := t.w.ask(ctx, r, e)
	h.asks++
	now := t.w.store.Now()
	switch {
	case err == nil && answer.Code == http.StatusNotFound:
		if wait := time.Until(h.safe); wait > 0 {
			return false, h.later(wait, errors.New("a POST that the receiver has not seen may still be in flight"))
		}
		event.Kind = machine.NeverSeen
		return true, nil
	case err == nil && answer.Code >= 200 && answer.Code <= 299:
		event.Kind, event.Outcome = machine.Asked, machine.Classify(answer.Code, true)
		event.Response, event.Truncated = response(answer), answer.Truncated
		return true, nil
	case now.Sub(e.SentAt) > t.w.cfg.PollDeadline, e.Expires(now):
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.UnknownOutcome, "the status endpoint has not answered in time"
		return true, nil
	case err == nil:
		err = fmt.Errorf("the status endpoint answered %d", answer.Code)
		return false, h.later(max(pause(h.asks), retryAfter(answer.Header)), err)
	}
	if ctx.Err() != nil {
		return false, jetpull.Retry(0, err)
	}
	return false, h.later(pause(h.asks), err)
}

// ordered reports whether a receiver's messages of one source are sent one after the other.
func ordered(r store.Receiver) bool { return r.Order != store.OrderNone && r.Order != "" }
