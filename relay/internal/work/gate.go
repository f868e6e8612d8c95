package work

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// breakerFailures is the number of failed POSTs in a row that opens the breaker.
	breakerFailures = 5
	breakerFirst    = time.Second
	// forever is the wait if the time of the next change is unknown.
	forever = time.Hour
)

var (
	errStopping = errors.New("the worker stops, or has lost its pin")
	errExpired  = errors.New("the time to live is over")
	errDeleted  = errors.New("the receiver was deleted")
)

// receiverGate is the gate of one receiver in this process. Its callers wait until the gate lets a POST begin. It uses this process's clock.
// window.go hands over the rate window.
type receiverGate struct {
	w    *core
	name string

	// confirm asks the server for the pin that it has assigned.
	confirm func(ctx context.Context) (pin string, err error)

	checking chan struct{} // full while a goroutine reads or writes the stored window
	window   uint64        // guarded by checking: the revision of the stored window that this process owns; 0: it owns none
	claimed  string        // guarded by checking: the pin with which it was taken

	mu         sync.Mutex
	pin        string        // the id of the pin with which this process sends; "": another process sends, or the lane ends
	changed    chan struct{} // closed when waiting callers should check again
	gate       gate.Gate
	verifiedAt time.Time
}

func newGate(w *core, receiver string) *receiverGate {
	g := &receiverGate{w: w, name: receiver, changed: make(chan struct{}), checking: make(chan struct{}, 1)}
	g.confirm = func(ctx context.Context) (string, error) { return w.store.PinOf(ctx, store.ToReceiver, receiver) }
	return g
}

// gateConfig returns the configuration of a receiver's gate. The breaker is open no longer than the pause between retries, so that with short pauses
// messages soon fail or arrive.
func gateConfig(r store.Receiver) gate.Config {
	return gate.Config{
		Disabled: r.Disabled, Paused: r.Paused, Limit: r.RateLimit, Window: r.Window, UntilEnd: true,
		Breaker: breaker.Rules{InARow: breakerFailures, Open: breakerFirst, MostOpen: min(r.RetryAfter, lastPause)},
	}
}

// pinned is called when this process has got the pin.
func (g *receiverGate) pinned(e jetpull.PinEvent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pin = e.ID
}

// unpin makes waiting callers give up, if the lost pin is the present one.
func (g *receiverGate) unpin(lost string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pin == lost {
		g.pin = ""
		g.pokeLocked()
	}
}

// look returns the pin, and a channel that is closed when it may have changed.
func (g *receiverGate) look() (pin string, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pin, g.changed
}

// pokeLocked makes waiting callers check again.
func (g *receiverGate) pokeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

type permit struct {
	store.Receiver
	gate.Permit
	failure string // why the POST failed
}

// acquire waits until a POST may begin. It returns an error if none may. The caller reports the end of the POST to release.
func (g *receiverGate) acquire(ctx context.Context, expires time.Time) (p permit, err error) {
	for {
		pin, changed := g.look()
		if pin == "" {
			return p, errStopping
		}
		if p.Receiver, err = g.w.store.Receivers.Find(ctx, g.name); err != nil {
			return p, err
		}
		if p.Gone() {
			return p, errDeleted
		}
		if p.RateLimit > 0 {
			if err := g.ensureOwner(ctx, p.Receiver); err != nil {
				return p, err
			}
		}
		if !expires.IsZero() && expires.Sub(g.w.store.Now()) <= dueWithin {
			return p, errExpired
		}
		wait := g.begin(&p)
		pause := forever
		switch {
		case wait.For == "":
			return p, nil
		case wait.For == gate.Elsewhere:
			return p, errStopping
		case !wait.Until.IsZero():
			pause = time.Until(wait.Until)
		}
		if !expires.IsZero() {
			pause = min(pause, expires.Sub(g.w.store.Now()))
		}
		select {
		case <-time.After(pause):
		case <-changed:
		case <-ctx.Done():
			return p, errStopping
		}
	}
}

// begin begins a POST, or returns why it must wait.
func (g *receiverGate) begin(p *permit) gate.Wait {
	g.mu.Lock()
	defer g.mu.Unlock()
	config, now := gateConfig(p.Receiver), time.Now()
	config.Elsewhere = g.pin == ""
	wait := g.gate.Next(config, now)
	if wait.For == "" {
		p.Permit = g.gate.Begin(config, now)
	}
	return wait
}

// release records the end of a POST that acquire permitted.
func (g *receiverGate) release(p permit, o gate.Outcome) {
	g.mu.Lock()
	change := g.gate.End(gateConfig(p.Receiver), p.Permit, o, time.Now())
	g.pokeLocked()
	pin := g.pin
	g.mu.Unlock()
	switch change {
	case gate.Opened:
		g.w.notify(event{Event: eventOpened, Receiver: g.name, Reason: "too many POSTs failed, the last one with: " + p.failure})
	case gate.Closed:
		g.w.notify(event{Event: eventClosed, Receiver: g.name, Reason: "a POST succeeded"})
	case gate.Unchanged:
	}
	if pin == "" {
		g.leave() // stop could not, because of this POST
	}
}

// forget ends a gate, and loses the state of its breaker.
func (g *receiverGate) forget() {
	if g.state(store.Receiver{}).Breaker != "closed" {
		g.w.notify(event{Event: eventClosed, Receiver: g.name, Reason: "nothing is sent"})
	}
}

// hold blocks POSTs for d, because the receiver requested it.
func (g *receiverGate) hold(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.Hold(time.Now().Add(d))
}

// configured ends a hold and lets an open breaker probe, because the receiver was reconfigured.
func (g *receiverGate) configured() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.Configured()
	g.pokeLocked()
}

// State is the state of a receiver's gate. Only the process that sends to the receiver knows its breaker, hold and rate.
type State struct {
	Breaker    string `json:"breaker"` // closed, open or half_open
	WindowUsed int    `json:"window_used"`
	InFlight   int    `json:"in_flight"`
	// Waiting is the reason why no POST can begin now, or nil.
	Waiting *gate.Wait `json:"waiting,omitempty"`
}

func (g *receiverGate) state(r store.Receiver) State {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	s := g.gate.State(gateConfig(r), now)
	state := State{Breaker: strings.ReplaceAll(string(s.Breaker), "-", "_"), WindowUsed: s.Used, InFlight: s.InFlight}
	if wait := g.gate.Next(gateConfig(r), now); wait.For != "" {
		state.Waiting = &wait
	}
	return state
}

// State returns the state of a receiver's gate in this process. Its times are by the server's clock.
func (w *Workers) State(r store.Receiver) State {
	s := w.gate(r.Name).state(r)
	if wait := s.Waiting; wait != nil && !wait.Until.IsZero() {
		wait.Until = w.store.Now().Add(time.Until(wait.Until)).Round(time.Millisecond).UTC()
	}
	return s
}

// The reasons for which a message waits, in addition to those of its receiver's gate.
const (
	ForOrder gate.Reason = "order" // an earlier message of the source is not settled
	ForRetry gate.Reason = "retry" // the pause after a failed attempt
)

// MessageWait returns the reason why a message waits. It returns nil if the message does not wait, or waits for a free worker.
func (w *Workers) MessageWait(ctx context.Context, m *machine.Record) (*gate.Wait, error) {
	r := w.store.Receivers.Get(m.Receiver)
	if m.Status != machine.Arrived || r.Gone() {
		return nil, nil
	}
	wait := w.State(r).Waiting
	if wait != nil && (wait.For == gate.Disabled || wait.For == gate.Paused) {
		return wait, nil
	}
	if ordered(r.Order) {
		first, err := w.store.First(ctx, store.ToReceiver, w.store.Filter(store.ToReceiver, m.Receiver, m.Source))
		if err != nil || first != nil && first.Subject != w.store.Filter(store.ToReceiver, m.Receiver, m.Source, m.ID) {
			return &gate.Wait{For: ForOrder}, err
		}
	}
	// Both waits must end, so the later end counts.
	if m.NextAt.After(w.store.Now()) && (wait == nil || !wait.Until.IsZero() && wait.Until.Before(m.NextAt)) {
		wait = &gate.Wait{For: ForRetry, Until: m.NextAt}
	}
	return wait, nil
}
