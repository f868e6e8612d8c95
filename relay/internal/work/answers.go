package work

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// fromReceiverAsync is the FromReceiverAsync worker of one receiver: it polls the status endpoint for pending responses. Several processes can run it
// at the same time.
func (w *answers) fromReceiverAsync(name string) worker {
	return w.entryWorker(store.FromReceiver, name, false, func(ctx context.Context, _ *jetpull.Msg, meta *jetstream.MsgMetadata, e *store.Entry) error {
		return w.decide(ctx, e, false, func() error {
			if e.Status != machine.Delivered {
				return w.follow(ctx, e)
			}
			return w.poll(ctx, name, e, int(meta.NumDelivered), meta.Timestamp)
		})
	})
}

// poll makes the n-th poll for an entry that was enqueued at since.
func (w *answers) poll(ctx context.Context, name string, e *store.Entry, n int, since time.Time) error {
	r, err := w.store.Receivers.Find(ctx, name)
	if err != nil {
		return err
	}
	event := machine.Event{Policy: w.policy(r, e.Sender), Stage: machine.FromReceiver}
	now := w.store.Now()
	switch {
	case r.Gone():
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.ReceiverDeleted, "the receiver was deleted"
	case e.Expires(now):
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.Expired, "the receiver has not answered in time"
	case now.Sub(since) > w.cfg.PollDeadline:
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.NoResponse, "the receiver has not answered in time"
	case r.StatusEndpoint == "":
		event.Kind, event.Reason, event.Error = machine.GiveUp, machine.NoResponse, "the receiver has no status endpoint any more"
	default:
		w.crashpoint("before-poll")
		if err := w.ask(ctx, r, e, pause(n), &event); err != nil {
			return err
		}
	}
	event.Now = w.store.Now()
	w.crashpoint("before-polled")
	return w.apply(ctx, e, event)
}

// Result is the state of a message in answers and callbacks. Package client has the same type.
type Result struct {
	Source    string          `json:"source_id"`
	ID        string          `json:"message_id"`
	Status    string          `json:"status"`
	Response  json.RawMessage `json:"response,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
	Error     *Failure        `json:"error,omitempty"`
}

// Failure is the reason why a message failed.
type Failure struct {
	Code    string `json:"code"`
	Stage   string `json:"stage"`
	Message string `json:"message"`
}

// Body returns the state of a message as its sender may see it, in a callback or an answer. It has no addresses: only operators see these.
func Body(r *machine.Record) Result {
	b := Result{Source: r.Source, ID: r.ID, Status: string(r.Status), Response: r.Response, Truncated: r.Truncated}
	if len(b.Response) == 0 {
		b.Response = json.RawMessage("null")
	}
	if f := r.Failure; f != nil {
		b.Error = &Failure{Code: string(f.Reason), Stage: string(f.Stage), Message: mask.Addresses(f.Error)}
	}
	return b
}

// answers carries responses back: it polls receivers, and calls senders back.
type answers struct{ *core }

// toSender is the ToSender worker of one sender: it repeats the callback until the sender answers 2xx.
func (w *answers) toSender(name string) worker {
	return w.entryWorker(store.ToSender, name, false, func(ctx context.Context, _ *jetpull.Msg, meta *jetstream.MsgMetadata, e *store.Entry) error {
		if meta.NumDelivered > 1 || e.Status == machine.Failed {
			generation := e.Generation
			if done, err := w.load(ctx, e); done || err != nil {
				return err
			}
			if e.Generation != generation {
				return nil // the message was redriven, and its next end has its own callback
			}
		}
		return w.callBack(ctx, name, e, int(meta.NumDelivered), meta.Timestamp)
	})
}

// callBack makes the n-th callback for an entry that was enqueued at since, and records the sender's confirmation.
func (w *answers) callBack(ctx context.Context, name string, e *store.Entry, n int, since time.Time) error {
	if e.Status == machine.Failed && e.Failure.Stage == machine.ToSender {
		// A worker gave up here, and ended before it put the message on the list or acknowledged the entry.
		return w.store.PutFailed(ctx, e)
	}
	if e.Status != machine.Responded && (e.Status != machine.Failed || e.Reported) {
		return nil // the sender has confirmed, or the message was redriven
	}
	sender, err := w.store.Senders.Find(ctx, name)
	if err != nil {
		return err
	}
	event := machine.Event{Kind: machine.CalledBack}
	if sender.CallbackEndpoint != "" { // a sender that was deleted has none
		w.crashpoint("before-callback")
		answer, err := w.callSender(ctx, sender, e)
		w.Metrics.calledBack(name, w.store.Receivers.Get(e.Receiver), answer, err, w.store.Now().Sub(e.ArrivedAt))
		w.log.Debug("callback", "source", e.Source, "message", e.ID, "sender", name, "result", result(answer, err), "trace", traceID(e.Trace))
		switch {
		case err == nil && answer.Code >= 200 && answer.Code <= 299:
		case ctx.Err() != nil:
			return jetpull.Retry(0, context.Cause(ctx))
		default:
			d := pauseAsked(pause(n), answer)
			if err == nil {
				err = fmt.Errorf("the callback answered %d", answer.Code)
			}
			if w.store.Now().Sub(since) < w.cfg.CallbackDeadline {
				return jetpull.Retry(d, err)
			}
			w.cfg.Reporter.Report(ctx, fmt.Errorf("a sender is given up: %w", err), "sender", name, "source", e.Source, "message", e.ID)
			if e.Status == machine.Responded {
				event = machine.Event{Kind: machine.GiveUp, Stage: machine.ToSender, Reason: machine.CallbackFailed, Error: err.Error()}
			}
		}
	}
	w.crashpoint("after-callback")
	event.Now = w.store.Now()
	generation := e.Generation
	return w.decide(ctx, e, false, func() error {
		next, ok := machine.Next(e.Record, event)
		if !ok || e.Generation != generation {
			return nil // the sender has confirmed, or the message was redriven, and its next end has its own callback
		}
		if _, err := w.swap(ctx, e, next); err != nil {
			return err
		}
		w.crashpoint("after-callback-stored")
		if event.Kind == machine.CalledBack && e.Status == machine.Failed {
			return w.store.OnDisk(ctx, e.Revision) // the message is on the list already
		}
		return w.follow(ctx, e)
	})
}

func (w *answers) callSender(ctx context.Context, sender store.Sender, e *store.Entry) (*webhook.Answer, error) {
	body := Body(&e.Record)
	if e.Status == machine.Responded {
		body.Status = string(machine.Done)
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write the callback: %w", err)
	}
	h := http.Header{"User-Agent": {userAgent}, "Content-Type": {"application/json"}}
	id := WebhookID(e.Source, e.ID)
	if e.Generation > 0 {
		// The second end of a message needs another ID. Otherwise the sender would drop it as a duplicate.
		id += "/" + strconv.Itoa(e.Generation)
	}
	return w.exchange(ctx, "callback", e, sender.Secrets, id, webhook.Request{
		Identity: "senders/" + httpserve.EscapeID(sender.Name), Method: http.MethodPost, URL: sender.CallbackEndpoint, Header: h, Body: payload, Limit: 256,
	})
}
