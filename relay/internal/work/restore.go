package work

import (
	"context"
	"errors"

	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// load reads the record of an entry. done says that there is none, and nothing left to do.
func (w *core) load(ctx context.Context, e *store.Entry) (done bool, err error) {
	v, err := w.store.Load(ctx, e.Source, e.ID)
	if errors.Is(err, store.ErrNotFound) {
		return w.restore(ctx, e)
	}
	if err == nil {
		e.Versioned = v
	}
	return false, err
}

// restore creates the record of an entry again that the store has lost: a cluster can set a stream back to an older state. done says that
// there is nothing left to do: the record may have expired after its tombstone, or the message was never accepted.
func (w *core) restore(ctx context.Context, e *store.Entry) (done bool, err error) {
	if w.store.Now().Sub(e.ArrivedAt) >= w.cfg.Tombstone {
		return true, nil // it was completed long ago
	}
	r, err := w.store.Receivers.Find(ctx, e.Receiver)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return true, err
	}
	if w.store.Embedded() && !repeatable(r) {
		return true, nil // a loss of power before its sender had an answer
	}
	event := machine.Event{Policy: w.policy(r, e.Sender), Now: w.store.Now()}
	v, err := w.store.Create(machine.Restore(e.Record, event))(ctx)
	if err == nil {
		e.Versioned = v
		w.lost.Add(1)
	}
	return false, err
}

func (w *core) reportLost() {
	if n := w.lost.Swap(0); n > 0 {
		w.cfg.Reporter.Report(w.ctx, errors.New("the store has lost the records of messages: they go on from the copies in the queues"), "messages", n)
	}
}
