package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// grace is added to a receiver's timeout before a POST of a process that died counts as over.
const grace = time.Second

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
	if err := t.w.apply(ctx, e, event); err != nil {
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
