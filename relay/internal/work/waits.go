package work

import (
	"context"

	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// The reasons for which a message waits, in addition to those of its receiver's gate.
const (
	ForOrder gate.Reason = "order" // an earlier message of the source is not settled
	ForRetry gate.Reason = "retry" // the pause after a failed attempt
)

// ReceiverWait returns the reason why the next POST to a receiver waits, or nil. Only the process that sends to the receiver
// knows its breaker, hold and rate.
func (w *Workers) ReceiverWait(r store.Receiver) *gate.Wait { return w.gate(r.Name).waits(r) }

// MessageWait returns the reason why a message waits. nil means that it does not wait, or waits for a free worker.
func (w *Workers) MessageWait(ctx context.Context, m *machine.Record) (*gate.Wait, error) {
	r, known := w.store.Receivers.Get(m.Receiver)
	if m.Status != machine.Arrived || !known || r.Deleted {
		return nil, nil
	}
	wait := w.ReceiverWait(r)
	if wait != nil && (wait.For == gate.Disabled || wait.For == gate.Paused) {
		return wait, nil
	}
	if r.Order != store.OrderNone {
		if behind, err := w.behind(ctx, m); behind || err != nil {
			return &gate.Wait{For: ForOrder}, err
		}
	}
	// Both waits have to end: the later end counts.
	if m.NextAt.After(w.store.Now()) && (wait == nil || !wait.Until.IsZero() && wait.Until.Before(m.NextAt)) {
		wait = &gate.Wait{For: ForRetry, Until: m.NextAt}
	}
	return wait, nil
}

// behind reports whether an earlier message of the source waits for the receiver.
func (w *Workers) behind(ctx context.Context, m *machine.Record) (bool, error) {
	entry, err := w.store.First(ctx, store.ToReceiver, w.store.Filter(store.ToReceiver, m.Receiver, m.Source, m.ID))
	if entry == nil {
		return false, err // without an error, its status has changed meanwhile
	}
	first, err := w.store.First(ctx, store.ToReceiver, w.store.Filter(store.ToReceiver, m.Receiver, m.Source))
	return first != nil && first.Sequence < entry.Sequence, err
}
