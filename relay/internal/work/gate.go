package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
// The times are in this process. Before the first POST the gate writes the window into the store. If it finds one whose owner has not
// saved the times of its last POSTs, it assumes that the window is full. A process that was stalled may have lost its pin without
// noticing. So the gate reads the revision again when the last read is older than half of the take-over time, and a process that takes
// over waits that much longer.
type gate struct {
	w    *core
	name string

	checking chan struct{} // is full while somebody reads or writes the stored window
	window   uint64        // guarded by checking: the revision of the stored window that this process owns; 0: it owns none

	mu         sync.Mutex
	pin        string        // the id of the pin with which this process sends; "": another process sends, or the lane ends
	changed    chan struct{} // closed when waiting callers should look again
	inFlight   int
	sent       []time.Time // when the POSTs ended that may count, oldest first
	notBefore  time.Time   // the end of a hold, which the receiver asked for by Retry-After
	breaker    breaker.Breaker
	verifiedAt time.Time
}

func newGate(w *core, receiver string) *gate {
	return &gate{w: w, name: receiver, changed: make(chan struct{}), checking: make(chan struct{}, 1)}
}

// pinned is called when this process has got the pin.
func (g *gate) pinned(e jetpull.PinEvent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pin = e.ID
}

// unpin makes waiting callers give up, if the pin that is lost is the last one.
func (g *gate) unpin(lost string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pin == lost {
		g.pin = ""
		g.pokeLocked()
	}
}

// look returns the pin, and a channel that is closed when it may have changed.
func (g *gate) look() (pin string, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pin, g.changed
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

// acquire waits until a POST may begin, or this process may not send any more. The caller reports the end of the POST to release.
func (g *gate) acquire(ctx context.Context, expires time.Time) (p permit, err error) {
	for {
		pin, changed := g.look()
		if pin == "" {
			return p, errStopping
		}
		if p.Receiver, err = g.w.store.Receivers.Find(ctx, g.name); err != nil {
			return p, err
		}
		if p.RateLimit > 0 {
			if err := g.own(ctx, p.Receiver); err != nil {
				return p, err
			}
		}
		if !expires.IsZero() && expires.Sub(g.w.store.Now()) <= dueWithin {
			return p, errExpired
		}
		var wait time.Duration
		if wait, p.turn = g.try(p.Receiver, time.Now()); wait == 0 {
			return p, nil
		}
		if !expires.IsZero() {
			wait = min(wait, expires.Sub(g.w.store.Now()))
		}
		select {
		case <-time.After(wait):
		case <-changed:
		case <-ctx.Done():
			return p, errStopping
		}
	}
}

// try takes a place, or returns how long there is certainly none.
func (g *gate) try(r store.Receiver, now time.Time) (wait time.Duration, turn int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait, _ = g.blockedLocked(r, now); wait > 0 {
		return wait, 0
	}
	turn, _ = g.breaker.Allow(now) // blockedLocked has checked that it is allowed
	g.inFlight++
	return 0, turn
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
	g.mu.Lock()
	was := g.breaker.Current()
	g.inFlight--
	now := time.Now()
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
	is, pin := g.breaker.Current(), g.pin
	g.mu.Unlock()
	switch {
	case was == breaker.Closed && is == breaker.Open:
		g.w.notify(event{Event: eventOpened, Receiver: g.name})
	case was != breaker.Closed && is == breaker.Closed:
		g.w.notify(event{Event: eventClosed, Receiver: g.name})
	}
	if pin == "" {
		g.leave() // stop could not, because of this POST
	}
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
func (g *gate) own(ctx context.Context, r store.Receiver) error {
	select {
	case g.checking <- struct{}{}:
	case <-ctx.Done():
		return errStopping
	}
	defer func() { <-g.checking }()
	pin, _ := g.look()
	if pin == "" {
		return errStopping // a lane that ends has left the window
	}
	if g.fresh() {
		return nil
	}
	begun := time.Now()
	found, err := g.w.store.Window(ctx, g.name)
	if err != nil {
		return err
	}
	// If the answer to an earlier write was lost, the window has this pin and another revision, and nothing was sent since.
	if found.Revision == 0 || found.Pin != pin && found.Revision != g.window {
		found = g.claim(pin, r, found)
		if found.Revision, err = g.w.store.PutWindow(ctx, g.name, found); err != nil {
			return fmt.Errorf("take over the window: %w", err)
		}
	}
	g.takeOver(found, begun)
	return nil
}

// claim returns the window that is to replace the found one, with the POSTs that may count in it.
func (g *gate) claim(pin string, r store.Receiver, found store.Window) store.Window {
	claimed := store.Window{Pin: pin, Posts: found.Posts, Revision: found.Revision}
	if found.Revision != 0 && !found.Left {
		// It is not known when the previous owner has made its last POSTs, so the window is full. A process that was stalled may make
		// some after this.
		claimed.Posts = []store.Posts{{Age: -g.w.cfg.Takeover / 2, Count: r.RateLimit}}
	}
	return claimed
}

// takeOver begins with the POSTs in a window that this process has taken since it last looked.
func (g *gate) takeOver(taken store.Window, begun time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.verifiedAt = begun; taken.Revision == g.window {
		return
	}
	g.window, g.sent = taken.Revision, nil
	// Not earlier than now: the previous owner may have made POSTs until the new one was written. It is not known how long ago the
	// posts were saved, so their ages are taken as of now.
	now := time.Now()
	for _, p := range taken.Posts {
		g.sent = append(g.sent, slices.Repeat([]time.Time{now.Add(-p.Age)}, max(0, p.Count))...)
	}
}

// stop lets no other POST begin, and saves the window. The lane gives up its pin after that, so the next process finds what was saved.
func (g *gate) stop() {
	pin, _ := g.look()
	g.unpin(pin)
	g.leave()
}

// leave saves the ages of the last POSTs for the next owner. If a POST is in flight, its end does so.
func (g *gate) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.w.ctx), g.w.cfg.Takeover)
	defer cancel()
	g.checking <- struct{}{}
	defer func() { <-g.checking }()
	g.mu.Lock()
	left := store.Window{Revision: g.window, Left: true, Posts: merge(g.sent, time.Now())}
	usable := g.window != 0 && g.inFlight == 0
	if usable {
		g.window, g.verifiedAt = 0, time.Time{}
	}
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
