package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Notifier calls the user's callbacks in order, on a goroutine that lives while there are any, so that they do not delay deliveries.
type Notifier struct {
	Start func(func(context.Context)) bool // starts the goroutine, or reports false

	mu      sync.Mutex
	queue   []func()
	calling bool
}

// Post calls f after the callbacks that were posted before, never on the caller's goroutine. Handlers may still run after the Subscription was
// closed. Then nothing waits for the goroutine of their callbacks, which ends when these have returned.
func (n *Notifier) Post(f func()) {
	n.mu.Lock()
	n.queue = append(n.queue, f)
	idle := !n.calling
	n.calling = true
	n.mu.Unlock()
	if idle && !n.Start(n.callQueued) {
		go n.callQueued(context.Background())
	}
}

func (n *Notifier) callQueued(context.Context) {
	for {
		n.mu.Lock()
		if len(n.queue) == 0 {
			n.calling, n.queue = false, nil
			n.mu.Unlock()
			return
		}
		f := n.queue[0]
		n.queue = n.queue[1:]
		n.mu.Unlock()
		f()
	}
}

// Reporter logs the events of one call, each change of state once, and passes problems to OnError. At most
// problemsMost problems wait, so that a callback that blocks does not fill the memory. Further ones are dropped, and one line of the log says so.
type Reporter struct {
	Log      *slog.Logger
	OnError  func(error) // nil: none
	Events   bool        // failed attempts go to OnEvent, and not to OnError too
	Notifier *Notifier

	disturbed atomic.Bool
	waiting   atomic.Int64
	missed    atomic.Bool
}

// problemsMost is the number of problems that may wait for OnError. All handlers may fail at once.
const problemsMost = 4096

// Later logs on the goroutine of the callbacks. It is for events that occur while messages are delivered, or under a lock,
// where the user's logger must not be called.
func (r *Reporter) Later(level slog.Level, text string, args ...any) {
	r.Notifier.Post(func() {
		r.Log.Log(context.Background(), level, text, args...) //nolint:sloglint // callers give a literal
	})
}

// Error passes err to OnError. A nil err, such as that of an acknowledgement that was sent, is ignored.
func (r *Reporter) Error(err error) {
	if err != nil && r.OnError != nil {
		r.Call(func() { r.OnError(err) })
	}
}

// Call calls a callback of the user on the goroutine of the callbacks. If too many wait, f is dropped.
func (r *Reporter) Call(f func()) {
	if r.waiting.Load() >= problemsMost {
		if !r.missed.Swap(true) {
			r.Later(slog.LevelWarn, "jetpull: OnError or OnEvent is too slow, and does not get further problems; return from it at once, and work elsewhere",
				"waiting", problemsMost)
		}
		return
	}
	r.waiting.Add(1)
	r.Notifier.Post(func() {
		if r.waiting.Add(-1) == 0 {
			r.missed.Store(false)
		}
		f()
	})
}

// Problem reports that a pull failed, or if err is nil that pulls are answered again. It logs the beginning and the end of a disturbance.
func (r *Reporter) Problem(err error) {
	switch before := r.disturbed.Swap(err != nil); {
	case err != nil && !before:
		r.Later(slog.LevelWarn, "jetpull: pulling is disturbed", "error", err)
	case err == nil && before:
		r.Later(slog.LevelInfo, "jetpull: pulling is no longer disturbed")
	}
	r.Error(err)
}

// Disturbed reports whether pulling is disturbed.
func (r *Reporter) Disturbed() bool { return r.disturbed.Load() }

// Failed logs that a handler failed, with the outcome and further arguments, and passes the error to OnError if no event reports it.
func (r *Reporter) Failed(seq uint64, err error, event bool, outcome ...any) {
	log, text := r.Log.Warn, "jetpull: handler failed"
	if _, panicked := errors.AsType[*PanicError](err); panicked {
		log, text = r.Log.Error, "jetpull: handler panicked"
	}
	log(text, append([]any{"sequence", seq, "error", err, "outcome"}, outcome...)...)
	if !r.Events || !event {
		r.Error(fmt.Errorf("jetpull: stream sequence %d: %w", seq, err))
	}
}

// LastDeliveries reports messages that are handed back and will not be delivered again. If failed, an event may report them instead of OnError.
func (r *Reporter) LastDeliveries(failed bool, seqs ...uint64) {
	r.Later(slog.LevelWarn, "jetpull: messages were handed back at their last delivery; the server delivers them no more: MaxDeliver counts each stop",
		"messages", len(seqs), "sequences", seqs[:min(len(seqs), sequencesMost)])
	for _, seq := range seqs {
		if failed && r.Events {
			continue
		}
		r.Error(fmt.Errorf("jetpull: stream sequence %d was handed back at its last delivery: take it from the stream; a larger MaxDeliver prevents it",
			seq))
	}
}

// sequencesMost is the maximum number of sequences in a line of the log.
const sequencesMost = 20
