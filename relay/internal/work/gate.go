package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/webhook/breaker"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// breakerFailures is the number of failed POSTs in a row that opens the breaker.
	breakerFailures = 5
	breakerFirst    = time.Second
	// forever is the wait for a change that has no known time.
	forever = time.Hour
)

var (
	errStopping = errors.New("the worker stops, or has lost its pin")
	errExpired  = errors.New("the time to live is over")
)

// gate decides when the next POST to a receiver may begin: not while the receiver is paused, disabled or on hold, not while its
// breaker is open, and never more than RateLimit in any Window.
//
// A POST takes its place in the window when it begins and frees it a window after it has ended. The receiver sees it somewhere in
// between. So no window at the receiver has more POSTs than the limit, whatever the network does.
//
// The times are in this process. Before the first POST the gate writes the window into the store. If it finds one of another process
// that has not saved the times of its last POSTs, it assumes that the window is full. A process that was stalled may have
// lost its pin without noticing. So the gate reads the revision again when the last read is older than half of the take-over time,
// and a process that takes over waits that much longer.
type gate struct {
	w    *core
	name string

	pin      atomic.Value  // of a string: the id of the pin that this process holds; "" or nothing: another process sends
	checking chan struct{} // is full while somebody reads or writes the owner of the window

	mu         sync.Mutex
	changed    chan struct{} // closed when waiting callers should look again
	inFlight   int
	sent       []time.Time // when the POSTs ended that may count, oldest first
	notBefore  time.Time   // the end of a hold, which the receiver asked for by Retry-After
	breaker    breaker.Breaker
	window     uint64 // the revision of the stored window that this process wrote; 0: it does not own the window
	verifiedAt time.Time
}

func newGate(w *core, receiver string) *gate {
	return &gate{w: w, name: receiver, changed: make(chan struct{}), checking: make(chan struct{}, 1)}
}

// unpin makes waiting callers give up, if the pin that was lost is the last one.
func (g *gate) unpin(e jetpull.PinEvent) {
	g.pin.CompareAndSwap(e.ID, "")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pokeLocked()
}

// pinned reports whether this process is the one that sends, as far as it knows.
func (g *gate) pinned() bool {
	id, _ := g.pin.Load().(string)
	return id != ""
}

// pokeLocked makes waiting callers look again.
func (g *gate) pokeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// permit allows one POST to begin.
type permit struct {
	store.Receiver
	turn int // of the breaker
}

// acquire waits until a POST may begin, this process loses its pin, or the lane is to stop. The caller reports the end of the POST to release.
func (g *gate) acquire(ctx context.Context, stop <-chan struct{}, expires time.Time) (p permit, err error) {
	for {
		if !g.pinned() {
			return p, errStopping
		}
		if p.Receiver, err = g.w.store.Receivers.Find(ctx, g.name); err != nil {
			return p, err
		}
		if p.RateLimit > 0 {
			if err := g.own(ctx, stop, p.Receiver); err != nil {
				return p, err
			}
		}
		if !expires.IsZero() && expires.Sub(g.w.store.Now()) <= dueWithin {
			return p, errExpired
		}
		var wait time.Duration
		var changed <-chan struct{}
		if wait, p.turn, changed = g.try(p.Receiver, time.Now()); wait == 0 {
			return p, nil
		}
		if !expires.IsZero() {
			wait = min(wait, expires.Sub(g.w.store.Now()))
		}
		select {
		case <-time.After(min(wait, g.w.cfg.Takeover/2)): // it may have lost its pin before it waited
		case <-changed:
		case <-stop:
			return p, errStopping
		case <-ctx.Done():
			return p, errStopping
		}
	}
}

// try takes a place, or returns how long there is certainly none.
func (g *gate) try(r store.Receiver, now time.Time) (wait time.Duration, turn int, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait, _ = g.blockedLocked(r, now); wait > 0 {
		return wait, 0, g.changed
	}
	turn, _ = g.breaker.Allow(now) // blockedLocked has checked that it is allowed
	g.inFlight++
	return 0, turn, nil
}

// blockedLocked returns how long no POST can begin, and the reason.
func (g *gate) blockedLocked(r store.Receiver, now time.Time) (time.Duration, Reason) {
	open := g.breaker.Wait(now)
	switch {
	case r.Disabled:
		return forever, ForDisabled
	case r.Paused:
		return forever, ForPause
	case open > 0:
		return min(open, forever), ForBreaker
	case now.Before(g.notBefore):
		return g.notBefore.Sub(now), ForHold
	case r.RateLimit <= 0:
		return 0, ""
	}
	if used := g.usedLocked(r, now); used >= r.RateLimit {
		// After the limit was lowered, several POSTs have to leave the window.
		leaving := used - r.RateLimit
		if leaving >= len(g.sent) {
			return forever, ForRate
		}
		return max(time.Microsecond, g.sent[leaving].Add(r.Window).Sub(now)), ForRate
	}
	return 0, ""
}

// usedLocked counts the POSTs in the window.
func (g *gate) usedLocked(r store.Receiver, now time.Time) int {
	gone := 0
	for gone < len(g.sent) && !now.Before(g.sent[gone].Add(r.Window)) {
		gone++
	}
	g.sent = g.sent[gone:]
	return g.inFlight + len(g.sent)
}

// release reports the end of a POST for which acquire returned.
func (g *gate) release(p permit, h health) {
	was, is := g.releaseNow(p, h, time.Now())
	switch {
	case was == breaker.Closed && is == breaker.Open:
		g.w.notify(event{Event: eventOpened, Receiver: g.name})
	case was != breaker.Closed && is == breaker.Closed:
		g.w.notify(event{Event: eventClosed, Receiver: g.name})
	}
}

// releaseNow returns the state of the breaker before and after.
func (g *gate) releaseNow(p permit, h health, now time.Time) (was, is breaker.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was = g.breaker.Current()
	g.inFlight--
	if h != noPOST && p.RateLimit > 0 {
		g.sent = append(g.sent, now)
	}
	switch h {
	case well, unwell:
		g.breaker.Outcome(breakerRules(p.Receiver), p.turn, h == well, now)
	case noPOST, neither:
		g.breaker.Withdraw(p.turn)
	}
	g.pokeLocked()
	return was, g.breaker.Current()
}

// forget closes a gate. The state of its breaker is lost.
func (g *gate) forget() {
	if g.state(store.Receiver{}).Breaker != "closed" {
		g.w.notify(event{Event: eventClosed, Receiver: g.name, Reason: "nothing is sent"})
	}
}

// breakerRules returns the rules for a receiver's breaker. It is open no longer than the pause between retries, so that with
// short pauses messages fail, or arrive, soon.
func breakerRules(r store.Receiver) breaker.Rules {
	return breaker.Rules{InARow: breakerFailures, Open: breakerFirst, MostOpen: min(r.RetryAfter, lastPause)}
}

// hold blocks POSTs for a while, because the receiver asked for it.
func (g *gate) hold(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := time.Now().Add(d); until.After(g.notBefore) {
		g.notBefore = until
	}
}

// configured ends a hold and lets an open breaker probe, because the receiver was configured again.
func (g *gate) configured() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notBefore = time.Time{}
	g.breaker.Probe()
	g.pokeLocked()
}

// fresh reports whether this process owned the window so recently that a process which has taken over since still assumes a full
// window.
func (g *gate) fresh() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.verifiedAt) < g.w.cfg.Takeover/2
}

// own makes sure that this process owns the window.
func (g *gate) own(ctx context.Context, stop <-chan struct{}, r store.Receiver) error {
	select {
	case g.checking <- struct{}{}:
	case <-stop:
		return errStopping
	case <-ctx.Done():
		return errStopping
	}
	defer func() { <-g.checking }()
	if g.fresh() {
		return nil
	}
	begun := time.Now()
	found, err := g.w.store.Window(ctx, g.name)
	if err != nil {
		return err
	}
	if !g.owns(found) {
		revision, err := g.w.store.PutWindow(ctx, g.name, store.Window{Revision: found.Revision})
		if err != nil {
			return fmt.Errorf("take over the window: %w", err)
		}
		g.takeOver(r, found, revision)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.verifiedAt = begun
	return nil
}

// owns reports whether a stored window is the one that this process wrote.
func (g *gate) owns(found store.Window) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return found.Revision != 0 && found.Revision == g.window
}

// takeOver begins with the POSTs that the previous owner saved.
func (g *gate) takeOver(r store.Receiver, found store.Window, revision uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.window, g.sent = revision, nil
	// Not earlier than now: the previous owner may have made POSTs until the new one was written. It is not known how long ago the
	// posts were saved, so their ages are taken as of now.
	now := time.Now()
	posts := found.Posts
	if found.Revision != 0 && !found.Left {
		// It is not known when the previous owner has made its last POSTs, so the window is full. A process that was stalled may make
		// some after this.
		posts = []store.Posts{{Count: r.RateLimit}}
		if !g.w.alone {
			now = now.Add(g.w.cfg.Takeover / 2)
		}
	}
	for _, p := range posts {
		g.sent = append(g.sent, slices.Repeat([]time.Time{now.Add(-p.Age)}, max(0, p.Count))...)
	}
}

// leave saves the ages of the last POSTs for the next owner. No POST may be in flight.
func (g *gate) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.w.ctx), g.w.cfg.Takeover)
	defer cancel()
	g.checking <- struct{}{}
	defer func() { <-g.checking }()
	g.mu.Lock()
	now := time.Now()
	left := store.Window{Revision: g.window, Left: true, Posts: merge(g.sent, now)}
	usable := g.window != 0 && g.inFlight == 0
	g.window, g.verifiedAt = 0, time.Time{}
	g.mu.Unlock()
	if !usable {
		return
	}
	if _, err := g.w.store.PutWindow(ctx, g.name, left); err != nil {
		g.w.log.Info("the next to send to a receiver takes its window for full", "receiver", g.name, "error", err)
	}
}

// maxLeft bounds the saved POSTs of a window, which must fit into one message.
const maxLeft = 1000

// merge returns the ages of POSTs, the oldest first. If it merges several, the last one stands for all, so that none leaves the
// window too early.
func merge(sent []time.Time, now time.Time) []store.Posts {
	var merged []store.Posts
	for some := range slices.Chunk(sent, max(1, (len(sent)+maxLeft-1)/maxLeft)) {
		merged = append(merged, store.Posts{Age: now.Sub(some[len(some)-1]).Truncate(time.Millisecond), Count: len(some)})
	}
	return merged
}

// State is the state of a receiver's gate.
type State struct {
	Breaker    string `json:"breaker"` // closed, open or half_open
	WindowUsed int    `json:"window_used"`
	InFlight   int    `json:"in_flight"`
}

func (g *gate) state(r store.Receiver) State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{Breaker: "closed", InFlight: g.inFlight}
	now := time.Now()
	switch {
	case g.breaker.Current() == breaker.Open && g.breaker.Wait(now) > 0:
		s.Breaker = "open"
	case g.breaker.Current() != breaker.Closed:
		s.Breaker = "half_open"
	}
	if r.RateLimit > 0 {
		s.WindowUsed = g.usedLocked(r, now)
	}
	return s
}
