package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// inWork is what a lane knows of the messages that are in work. One entry of a message is in work at a time.
type inWork struct {
	mu   sync.Mutex
	held map[string]*held // by source and ID
}

// held is what a lane knows of a message in work, and of one whose POST has no answer yet while it waits to be asked about.
type held struct {
	busy bool
	safe time.Time // when a POST of an unknown outcome is over; zero: not known
	asks int
}

func (w *inWork) started() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = map[string]*held{}
}

func heldKey(e *store.Entry) string { return e.Source + "\x00" + e.ID }

// take takes an entry into work; false: another entry of its message is in work.
func (w *inWork) take(e *store.Entry) (*held, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.held[heldKey(e)]
	if h == nil {
		h = &held{}
		w.held[heldKey(e)] = h
	}
	if h.busy {
		return nil, false
	}
	h.busy = true
	return h, true
}

// letGo ends the work on an entry.
func (w *inWork) letGo(e *store.Entry, h *held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.busy = false
	if key := heldKey(e); e.Status != machine.Sending && w.held[key] == h {
		delete(w.held, key)
	}
}

// grace is added to a receiver's timeout before a POST of a process that died counts as over.
const grace = time.Second

// resolve finds out what became of a POST that has no answer.
func (t *toReceiver) resolve(ctx context.Context, e *store.Entry, h *held) error {
	r, err := t.w.receiverNow(ctx, t.name)
	if err != nil && !errors.Is(err, errDeleted) {
		return jetpull.Retry(firstPause, err)
	}
	deleted := err != nil
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
			return jetpull.Retry(wait, errors.New("a POST without an answer may still be in flight"))
		}
		event.Kind, event.Note = machine.Lost, machine.Attempt{Time: e.SentAt, Error: "the process that sent it ended"}
		if e.Unknown {
			// It could be asked about when it was sent, and cannot be any more.
			event.Kind, event.Reason, event.Error = machine.GiveUp, machine.UnknownOutcome, "the receiver has no status endpoint any more"
		}
	}
	event.Now = t.w.store.Now()
	if err := t.w.apply(ctx, e, event); err != nil {
		return err
	}
	h.asks, h.safe = 0, time.Time{}
	if e.Status == machine.Arrived {
		return jetpull.Retry(max(0, e.NextAt.Sub(event.Now)), errors.New("the receiver has not seen it"))
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
			return false, jetpull.Retry(wait, errors.New("a POST that the receiver has not seen may still be in flight"))
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
		return false, jetpull.Retry(max(pause(h.asks), retryAfter(answer.Header)), err)
	}
	if ctx.Err() != nil {
		return false, jetpull.Retry(0, err)
	}
	return false, jetpull.Retry(pause(h.asks), err)
}
