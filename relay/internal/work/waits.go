package work

import (
	"context"
	"time"

	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// Reason is why a message that has arrived is not sent now.
type Reason string

// The reasons.
const (
	ForDisabled Reason = "disabled" // the receiver answered 410, and was not configured again
	ForPause    Reason = "pause"    // the receiver is paused
	ForOrder    Reason = "order"    // an earlier message of the source is not settled
	ForBreaker  Reason = "breaker"  // the receiver failed too often in a row
	ForHold     Reason = "hold"     // the receiver asked for a pause by Retry-After
	ForRate     Reason = "rate"     // the window of the rate limit is full
	ForRetry    Reason = "retry"    // the pause after a failed attempt
)

// Wait is the reason why a message waits.
type Wait struct {
	For Reason `json:"for"`
	// Until is when the wait ends by itself. Zero means that it does not, or that the time is not known.
	Until time.Time `json:"until,omitzero"`
}

// ReceiverWait returns the reason why the next POST to a receiver waits, or nil. Only the process that sends to the receiver
// knows its breaker, hold and rate.
func (w *Workers) ReceiverWait(r store.Receiver) *Wait { return w.lanes.gate(r.Name).waits(r) }

// MessageWait returns the reason why a message waits. nil means that it does not wait, or waits for a free worker.
func (w *Workers) MessageWait(ctx context.Context, m *machine.Record) (*Wait, error) {
	r, known := w.store.Receivers.Get(m.Receiver)
	if m.Status != machine.Arrived || !known || r.Deleted {
		return nil, nil
	}
	wait := w.ReceiverWait(r)
	if wait != nil && (wait.For == ForDisabled || wait.For == ForPause) {
		return wait, nil
	}
	if r.Order != store.OrderNone {
		if behind, err := w.behind(ctx, m); behind || err != nil {
			return &Wait{For: ForOrder}, err
		}
	}
	// Both waits have to end: the later end counts.
	if m.NextAt.After(w.store.Now()) && (wait == nil || !wait.Until.IsZero() && wait.Until.Before(m.NextAt)) {
		wait = &Wait{ForRetry, m.NextAt}
	}
	return wait, nil
}

// behind reports whether an earlier message of the source waits for the receiver.
func (w *Workers) behind(ctx context.Context, m *machine.Record) (bool, error) {
	own, err := w.store.First(ctx, store.ToReceiver, w.store.Filter(store.ToReceiver, m.Receiver, m.Source, m.ID))
	if own == nil {
		return false, err // without an error, its status has changed meanwhile
	}
	first, err := w.store.First(ctx, store.ToReceiver, w.store.Filter(store.ToReceiver, m.Receiver, m.Source))
	return first != nil && first.Sequence < own.Sequence, err
}

func (g *gate) waits(r store.Receiver) *Wait {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, reason := g.blockedLocked(r, time.Now())
	switch d {
	case 0:
		return nil
	case forever:
		return &Wait{For: reason}
	}
	return &Wait{reason, g.w.store.Now().Add(d).Round(time.Millisecond).UTC()}
}
