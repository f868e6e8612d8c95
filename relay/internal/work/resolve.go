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

// grace is added to the time after which a POST is over, for the network and for differences between the clocks of two processes.
const grace = time.Second

// resolve finds the outcome of a POST without an answer.
func (t *toReceiver) resolve(ctx context.Context, e *store.Entry) error {
	r, err := t.w.store.Receivers.Find(ctx, t.owner)
	if err != nil {
		return err
	}
	event := machine.Event{Policy: t.w.policy(r, e.Sender), Attempt: e.Attempt, Stage: machine.ToReceiver}
	asked := r.StatusEndpoint != "" && !r.Gone()
	if asked {
		// Each pause is as long as the time since the first request, so that pauses double.
		first, _ := t.asked.LoadOrStore(e.Revision, time.Now())
		err = t.w.ask(ctx, r, e, min(max(time.Since(first.(time.Time)), firstPause), lastPause), &event)
		switch now := t.w.store.Now(); {
		case err == nil:
		case now.Sub(e.SentAt) > t.w.cfg.PollDeadline, e.Expires(now):
			event.Kind, event.Reason, event.Error = machine.GiveUp, machine.UnknownOutcome, "the status endpoint has not answered in time"
		default:
			return err
		}
	}
	// The POST may be in flight for this long, whichever process made it.
	wait := e.SentAt.Add(sendWithin + r.Timeout + grace).Sub(t.w.store.Now())
	if wait > 0 && (!asked || event.Kind == machine.NeverSeen) {
		return jetpull.Retry(wait, errors.New("a POST without an answer may still be in flight"))
	}
	switch {
	case asked:
	case e.Unknown:
		// The receiver had a status endpoint when the message was sent, but has none now.
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.UnknownOutcome, "the receiver has no status endpoint any more"
	default:
		event.Kind, event.Note = machine.Lost, machine.Attempt{Time: e.SentAt, Error: "the process that sent it ended"}
	}
	t.asked.Delete(e.Revision)
	event.Now = t.w.store.Now()
	return t.conclude(ctx, e, event)
}

// ask requests the status of a message from the status endpoint, and fills the event with the answer. If there is none yet, it returns a Retry after
// pause, or after the Retry-After of the answer.
func (w *core) ask(ctx context.Context, r store.Receiver, e *store.Entry, pause time.Duration, event *machine.Event) error {
	answer, err := w.get(ctx, r, e)
	switch {
	case err != nil:
		return jetpull.Retry(pause, err)
	case answer.Code == http.StatusNotFound && e.Status == machine.Sending:
		event.Kind = machine.NeverSeen
		return nil
	}
	event.Outcome = machine.Classify(answer.Code, true)
	if event.Outcome == machine.Result || event.Outcome == machine.Pending && e.Status == machine.Sending {
		event.Kind = machine.Asked
		event.Response, event.Truncated = response(answer), answer.Truncated
		return nil
	}
	pause = pauseAsked(pause, answer)
	if left := e.ExpiresAt.Sub(w.store.Now()); left > 0 {
		pause = min(pause, left)
	}
	return jetpull.Retry(pause, fmt.Errorf("the status endpoint answered %d", answer.Code))
}

// load reads the record of an entry. If the store has lost the record, load creates it again: a cluster can set a stream back to an older state. done
// reports that nothing is left to do, because the record expired after its tombstone, or the message was never accepted.
func (w *core) load(ctx context.Context, e *store.Entry) (done bool, err error) {
	v, err := w.store.Load(ctx, e.Source, e.ID)
	if err == nil {
		e.Versioned = v
	}
	if !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	if w.store.Now().Sub(e.ArrivedAt) >= w.cfg.Tombstone {
		return true, nil // it was completed long ago
	}
	r, err := w.store.Receivers.Find(ctx, e.Receiver)
	if err != nil {
		return true, err
	}
	if w.store.Embedded && !repeatable(r) {
		return true, nil // power was lost before its sender had an answer
	}
	event := machine.Event{Policy: w.policy(r, e.Sender), Now: w.store.Now()}
	if v, err = w.store.Create(machine.Restore(e.Record, event))(ctx); err == nil {
		e.Versioned = v
		w.lost.Add(1)
	}
	return false, err
}
