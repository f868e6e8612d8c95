package work

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// messageTTL is the worker that handles the reminders that the server publishes when a time to live is over.
func (w *ingest) messageTTL() worker {
	worker := w.newWorker(w.store.TTLStream(), "message_ttl", w.store.TTLFilter(), false)
	worker.handle = func(ctx context.Context, m *jetpull.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		tokens := strings.Split(m.Subject(), ".")
		source, err := store.ParseToken(tokens[len(tokens)-2])
		if err != nil {
			return jetpull.Terminate("reminder cannot be read", err)
		}
		id, err := store.ParseToken(tokens[len(tokens)-1])
		if err != nil {
			return jetpull.Terminate("reminder cannot be read", err)
		}
		if err := w.expire(ctx, source, id, meta.Timestamp); err != nil {
			return err
		}
		return w.store.Forget(ctx, "", meta.Sequence.Stream)
	}
	return worker
}

// expire ends a message unless its POST is in flight. at is the time of the reminder, by the server's clock.
func (w *ingest) expire(ctx context.Context, source, id string, at time.Time) error {
	v, err := w.store.Load(ctx, source, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	case v.Status == machine.Sending:
		return jetpull.Retry(time.Second, errors.New("an attempt is in flight"))
	case !v.Expires(at):
		return nil // it was redriven, or the reminder belongs to an earlier message with the same ID
	}
	// A process that ended it may have died before the message was on the list. Then its entry still exists.
	ended := v.Status == machine.Failed && v.Failure.Reason == machine.Expired
	queue, event := store.ToReceiver, machine.Event{Kind: machine.Expire, Now: w.store.Now(), Stage: machine.ToReceiver, Error: "it was not sent in time"}
	if v.Status == machine.Delivered || ended && v.Failure.Stage == machine.FromReceiver {
		queue, event.Stage, event.Error = store.FromReceiver, machine.FromReceiver, "the receiver has not answered in time"
	}
	r, _ := w.store.Receivers.Get(v.Receiver)
	event.Policy = w.policy(r, v.Sender)
	next, ok := machine.Next(v.Record, event)
	if !ok && !ended {
		return nil
	}
	e, seq, err := w.store.Waiting(ctx, queue, v.Receiver, source, id)
	switch {
	case errors.Is(err, store.ErrNotFound) && ended:
		return nil
	case errors.Is(err, store.ErrNotFound):
		// The message is between two queues, or not enqueued yet. The worker that has it will see that it expired.
		return jetpull.Retry(time.Second, err)
	case err != nil:
		return err
	}
	e.Versioned = v
	if ended {
		err = w.follow(ctx, &e)
	} else {
		err = w.advance(ctx, &e, next)
	}
	if err != nil {
		return jetpull.Retry(firstPause, err)
	}
	w.crashpoint("after-expired")
	return w.store.Forget(ctx, queue, seq)
}
