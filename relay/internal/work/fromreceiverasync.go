package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// fromReceiverAsync is the FromReceiverAsync worker of one receiver: it asks the status endpoint for responses that
// are pending. Any number of processes do so side by side.
func (w *answers) fromReceiverAsync(name string) worker {
	worker := w.newWorker(w.store.StreamName(store.FromReceiver), w.store.Durable(store.FromReceiver, name), w.store.QueueFilter(store.FromReceiver, name), false)
	worker.handle = func(ctx context.Context, m *jetpull.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		e, err := store.DecodeEntry(m.Data())
		if err != nil {
			return w.store.Quarantine(ctx, m.Subject(), itoa(int(meta.Sequence.Stream)), m.Data(), err)
		}
		for range maxSteps {
			if e.Status != machine.Delivered {
				return w.again(w.follow(ctx, &e))
			}
			err = w.poll(ctx, name, &e, int(meta.NumDelivered), meta.Timestamp)
			if !errors.Is(err, store.ErrConflict) {
				return w.again(err)
			}
			if e.Versioned, err = w.store.Load(ctx, e.Source, e.ID); err != nil {
				if errors.Is(err, store.ErrNotFound) {
					return nil
				}
				return w.again(err)
			}
		}
		return jetpull.Retry(heldPause, fmt.Errorf("the record changed %d times in a row", maxSteps))
	}
	return worker
}

// poll asks once, the n-th time.
func (w *answers) poll(ctx context.Context, name string, e *store.Entry, n int, since time.Time) error {
	r, err := w.receiverNow(ctx, name)
	if err != nil && !errors.Is(err, errDeleted) {
		return jetpull.Retry(firstPause, err)
	}
	deleted := err != nil
	event := machine.Event{Policy: w.policy(r, e.Sender), Stage: machine.FromReceiver}
	var answer *webhook.Answer
	now, err := w.store.Now(), errors.New("the receiver has no status endpoint any more")
	switch {
	case deleted:
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.ReceiverDeleted, "the receiver was deleted"
	case e.Expires(now):
		event.Kind, event.Error = machine.Expire, "the receiver has not answered in time"
	case now.Sub(since) > w.cfg.PollDeadline:
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.NoResponse, "the receiver has not answered in time"
	case r.StatusEndpoint == "":
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.NoResponse, err.Error()
	default:
		w.crashpoint("before-poll")
		answer, err = w.ask(ctx, r, e)
		if err != nil {
			return jetpull.Retry(pause(n), err)
		}
		if answer.Code < 200 || answer.Code > 299 || machine.Classify(answer.Code, true) == machine.Pending {
			d := pauseAsked(n, answer)
			if left := e.ExpiresAt.Sub(w.store.Now()); left > 0 {
				d = min(d, left)
			}
			return jetpull.Retry(d, fmt.Errorf("the status endpoint answered %d", answer.Code))
		}
		event.Kind, event.Outcome = machine.Asked, machine.Result
		event.Response, event.Truncated = response(answer), answer.Truncated
	}
	event.Now = w.store.Now()
	next, ok := machine.Next(e.Record, event)
	if !ok {
		return store.ErrConflict
	}
	w.crashpoint("before-polled")
	return w.advance(ctx, e, next)
}
