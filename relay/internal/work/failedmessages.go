package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// failedMessages is the FailedMessages worker: it redrives messages that failed because their receiver or sender did not work, a limited number of
// times. Others stay on the list until an operator decides.
func (w *operator) failedMessages() worker {
	worker := w.newWorker(store.FailedMessages, "failed_messages", w.store.Subjects(store.FailedMessages), true)
	worker.handle = func(ctx context.Context, m *jetpull.Msg, meta *jetstream.MsgMetadata) error {
		item := store.ReadItem(m.Headers(), meta.Sequence.Stream)
		if item == nil {
			return nil // the message is off the list
		}
		if meta.NumDelivered == 1 {
			w.countFailed(item.Receiver, item.Reason)
		}
		if !item.Reason.Infrastructure() || item.Redrives >= len(w.cfg.AutoRedrive) {
			return nil
		}
		if wait := w.cfg.AutoRedrive[item.Redrives] - w.store.Now().Sub(meta.Timestamp); wait > 0 {
			return jetpull.Retry(wait, errors.New("its redrive is not due yet"))
		}
		err := w.Redrive(ctx, item)
		switch {
		case errors.Is(err, errNotRedriven):
			return nil
		case errors.Is(err, store.ErrMalformed):
			w.log.Warn("a failed message cannot be decoded, and stays on the list", "source", item.Source, "message", item.ID, "error", err)
			return nil
		}
		return err
	}
	return worker
}

var errNotRedriven = errors.New("not redriven")

// Redrive tries a failed message again. Its steps can be repeated after a crash. It changes the record first, so that only one of two concurrent
// redrives succeeds, and the list last, so that nothing is lost. If a loss of power takes the record but not the entry, the worker that finds the
// entry reads FAILED, and puts the message on the list again.
func (w *operator) Redrive(ctx context.Context, item *store.Item) error {
	if item.Reason == machine.Malformed {
		return fmt.Errorf("%w: it cannot be read", errNotRedriven)
	}
	if item.Stage != machine.ToSender {
		r, err := w.store.Receivers.Find(ctx, item.Receiver)
		if err == nil && r.Gone() {
			err = fmt.Errorf("%w: no receiver is called %q", errNotRedriven, item.Receiver)
		}
		if err != nil {
			return err
		}
	}
	e, err := w.store.FailedEntry(ctx, item)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: it is off the list", errNotRedriven)
	} else if err != nil {
		return err
	}
	for range maxSteps {
		if err = w.redriveRecord(ctx, &e, item); !errors.Is(err, store.ErrConflict) {
			break
		}
		if e.Versioned, err = w.store.Load(ctx, e.Source, e.ID); err != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, errNotRedriven) {
		return err
	}
	w.crashpoint("after-enqueued")
	if settleErr := w.store.Settle(ctx, item, store.Redrive, false); settleErr != nil && !errors.Is(settleErr, store.ErrConflict) {
		return settleErr
	}
	return err
}

// redriveRecord moves the record of a message out of FAILED and enqueues the message.
func (w *operator) redriveRecord(ctx context.Context, e *store.Entry, item *store.Item) (err error) {
	switch {
	case e.Status == machine.Failed && e.Generation == item.Redrives:
		policy := w.policy(w.store.Receivers.Get(e.Receiver), e.Sender)
		next, ok := machine.Next(e.Record, machine.Event{Kind: machine.Redrive, Now: w.store.Now(), Policy: policy})
		if !ok {
			return store.ErrConflict
		}
		w.crashpoint("before-redriven")
		if e.Versioned, err = w.store.Swap(e.Versioned, next)(ctx); err != nil {
			return err
		}
		w.crashpoint("after-redriven")
	case e.Generation == item.Redrives+1 && (e.Status == machine.Arrived || e.Status == machine.Sending) && e.Attempt == 0,
		e.Generation == item.Redrives+1 && e.Status == machine.Responded && item.Stage == machine.ToSender:
		// A process died after it wrote the record, before it enqueued the message.
	default:
		return fmt.Errorf("%w: it is %s", errNotRedriven, e.Status)
	}
	if e.Status == machine.Arrived || e.Status == machine.Sending {
		return w.enqueue(ctx, store.ToReceiver, e)
	}
	return w.follow(ctx, e)
}

// operationPage is how many messages of an operation are selected at a time.
const operationPage = 2500

// operator redrives, skips and purges failed messages.
type operator struct {
	*core
	Operations *bulk.Runner
}

func newOperator(c *core) operator {
	w := operator{core: c}
	w.Operations = bulk.New(bulk.Config{
		Records: c.store.Operations,
		Kinds: map[string]bulk.Kind{
			store.Redrive: w.operation(w.Redrive),
			store.Skip:    w.operation(func(ctx context.Context, i *store.Item) error { return w.store.Settle(ctx, i, store.Skip, true) }),
			store.Purge:   w.operation(func(ctx context.Context, i *store.Item) error { return w.store.Settle(ctx, i, store.Purge, false) }),
		},
		Process: c.Node, Shared: !c.store.Embedded, Lost: c.cfg.Takeover, Now: c.store.Now, Log: c.log,
	})
	return w
}

// operation returns a kind of operation that calls do for each failed message.
func (w *operator) operation(do func(context.Context, *store.Item) error) bulk.Kind {
	find := func(_ context.Context, o bulk.Operation, s store.Selection, from uint64, limit int) ([]store.Item, uint64, error) {
		found, next := w.store.SelectFailed(s, from, o.UpTo, limit)
		return found, next, nil
	}
	change := func(ctx context.Context, _ bulk.Operation, _ store.Selection, i store.Item) (bool, error) {
		err := do(ctx, &i)
		if errors.Is(err, errNotRedriven) || errors.Is(err, store.ErrConflict) {
			return false, nil
		}
		return err == nil, err
	}
	return bulk.NewKind(operationPage, w.store.LastFailed, find, change)
}
