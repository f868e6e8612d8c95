package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// fromReceiverAsync is the FromReceiverAsync worker of one receiver: it asks the status endpoint for responses that
// are pending. Any number of processes do so side by side.
func (w *answers) fromReceiverAsync(name string) worker {
	return w.entryWorker(store.FromReceiver, name, false, func(ctx context.Context, _ *jetpull.Msg, meta *jetstream.MsgMetadata, e *store.Entry) error {
		return w.decide(ctx, e, func() error {
			if e.Status != machine.Delivered {
				return w.follow(ctx, e)
			}
			return w.poll(ctx, name, e, int(meta.NumDelivered), meta.Timestamp)
		})
	})
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
	w.crashpoint("before-polled")
	return w.apply(ctx, e, event)
}
