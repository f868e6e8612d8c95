package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/webhook/breaker"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// breakerFailures is after how many POSTs in a row that failed the breaker opens.
	breakerFailures = 5
	breakerFirst    = time.Second
)

var (
	errStopping = errors.New("the worker stops")
	errExpired  = errors.New("the time to live is over")
)

// gate decides when the next POST to a receiver may begin: not while it is paused, disabled or asked for time, not
// while its breaker is open, and never more than RateLimit in any Window.
//
// A POST takes its place in the window when it begins and leaves it a whole window after it has ended. The receiver
// sees it somewhere in between, so that whatever the network does, no window at the receiver has more than the limit.
//
// The times are in this process. Before the first POST the gate writes its name into the store. If it finds another's
// there who has not left the times of its last POSTs, it takes the window for full. A process that was stalled may
// have lost its pin without knowing, so the gate looks again whether the name is its own when that is older than half
// of the time after which another takes over, and the one that takes over waits that much longer.
type gate struct {
	w    *core
	name string

	checking chan struct{} // holds one token: who has it may read and write the owner of the window

	mu         sync.Mutex
	changed    chan struct{} // closed when somebody who waits should look again
	inFlight   int
	sent       []time.Time // when the POSTs ended that may count, oldest first
	fullUntil  time.Time
	notBefore  time.Time // the receiver asked for time
	breaker    breaker.Breaker
	window     store.Window // as this process wrote it; Owner is empty until then
	verifiedAt time.Time
}

func newGate(w *core, receiver string) *gate {
	g := &gate{w: w, name: receiver, changed: make(chan struct{}), checking: make(chan struct{}, 1)}
	g.checking <- struct{}{}
	return g
}

// pokeLocked has everybody who waits look again.
func (g *gate) pokeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// permit lets one POST begin.
type permit struct {
	store.Receiver
	turn int // of the breaker
}

// acquire waits until a POST may begin, or the lane is to stop. The caller reports the end of the POST to release.
func (g *gate) acquire(ctx context.Context, stop <-chan struct{}, expires time.Time) (p permit, err error) {
	for {
		if p.Receiver, err = g.w.FindReceiver(ctx, g.name); err != nil {
			return p, err
		}
		if p.RateLimit > 0 {
			if err := g.own(ctx, stop, p.Receiver); err != nil {
				return p, err
			}
		}
		if !expires.IsZero() && !g.w.store.Now().Before(expires) {
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
		case <-time.After(wait):
		case <-changed:
		case <-stop:
			return p, errStopping
		case <-ctx.Done():
			return p, errStopping
		}
	}
}

// forever is the wait for something that is not a matter of time.
const forever = time.Hour

// try takes a place, or says how long there is none for sure.
func (g *gate) try(r store.Receiver, now time.Time) (wait time.Duration, turn int, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait, _ = g.blockedLocked(r, now); wait > 0 {
		return wait, 0, g.changed
	}
	turn, _ = g.breaker.Allow(now) // blockedLocked has found that it does
	g.inFlight++
	return 0, turn, nil
}

// blockedLocked says how long no POST can begin, and what for.
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
	case now.Before(g.fullUntil):
		return g.fullUntil.Sub(now), ForRate
	}
	if used := g.usedLocked(r, now); used >= r.RateLimit {
		// With a lower limit than before, more than one has to leave.
		leaving := used - r.RateLimit
		if leaving >= len(g.sent) {
			return forever, ForRate
		}
		return max(time.Microsecond, g.sent[leaving].Add(r.Window).Sub(now)), ForRate
	}
	return 0, ""
}

// usedLocked counts what is in the window.
func (g *gate) usedLocked(r store.Receiver, now time.Time) int {
	gone := 0
	for gone < len(g.sent) && !now.Before(g.sent[gone].Add(r.Window)) {
		gone++
	}
	g.sent = g.sent[gone:]
	return g.inFlight + len(g.sent)
}

// release ends what acquire began.
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

// forget ends a gate. An open breaker is forgotten with it.
func (g *gate) forget() {
	if g.state(store.Receiver{}).Breaker != "closed" {
		g.w.notify(event{Event: eventClosed, Receiver: g.name, Reason: "nothing is sent"})
	}
}

// breakerRules are those of a receiver. Its breaker is open no longer than its retries are apart: with short ones its messages are to
// fail, or arrive, soon.
func breakerRules(r store.Receiver) breaker.Rules {
	return breaker.Rules{InARow: breakerFailures, Open: breakerFirst, MostOpen: min(r.RetryAfter, lastPause)}
}

// hold has nothing begin for a while, because the receiver asked for it.
func (g *gate) hold(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := time.Now().Add(d); until.After(g.notBefore) {
		g.notBefore = until
	}
}

// configured ends what a receiver asked for and lets its open breaker probe: the receiver was configured again.
func (g *gate) configured() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notBefore = time.Time{}
	g.breaker.Probe()
	g.pokeLocked()
}

// holds reports whether the gate knows something that holds up the next POST, and that would be lost with it. What is known of a
// receiver that was deleted is of no use.
func (g *gate) holds() bool {
	if r, known := g.w.store.Receivers.Get(g.name); !known || r.Deleted {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	return now.Before(g.notBefore) || g.breaker.Wait(now) > 0 || now.Before(g.fullUntil)
}

// fresh tells whether this process was the one that counts so short a while ago that another, which has taken over
// since, still takes the window for full.
func (g *gate) fresh() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.window.Owner != "" && time.Since(g.verifiedAt) < g.w.cfg.Takeover/2
}

// own makes sure that this process is the one that counts.
func (g *gate) own(ctx context.Context, stop <-chan struct{}, r store.Receiver) error {
	if g.fresh() {
		return nil
	}
	select {
	case <-g.checking:
	case <-stop:
		return errStopping
	case <-ctx.Done():
		return errStopping
	}
	defer func() { g.checking <- struct{}{} }()
	if g.fresh() {
		return nil
	}
	begun := time.Now()
	found, err := g.w.store.Window(ctx, g.name)
	if err != nil {
		return err
	}
	if !g.counts(found) {
		revision, err := g.w.store.PutWindow(ctx, g.name, store.Window{Owner: g.w.node, Revision: found.Revision})
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

// counts tells whether this process has what is found in the store. Its name alone does not say so: it may have been stored
// by a write whose answer was lost, or be that of a run of the worker that left nothing behind.
func (g *gate) counts(found store.Window) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.window.Owner != "" && found.Owner == g.window.Owner && !found.Left
}

// takeOver begins with what the one before has left.
func (g *gate) takeOver(r store.Receiver, found store.Window, revision uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Now, and not earlier: the POSTs of the one before can be as late as the write of the name.
	now := time.Now()
	g.window = store.Window{Owner: g.w.node, Revision: revision}
	switch {
	case found.Revision == 0:
		// Nobody has sent anything, ever.
	case found.Left:
		// How long ago it left is not known, so no time has passed since.
		g.sent = g.sent[:0]
		for _, p := range found.Posts {
			g.sent = append(g.sent, slices.Repeat([]time.Time{now.Add(-max(0, p.Age))}, max(0, p.Count))...)
		}
	default:
		g.fullUntil = now.Add(r.Window)
		if !g.w.alone {
			g.fullUntil = g.fullUntil.Add(g.w.cfg.Takeover / 2)
		}
	}
}

// leave writes down the times of the last POSTs for whoever counts next. Nothing may be in flight.
func (g *gate) leave(ctx context.Context) {
	<-g.checking
	defer func() { g.checking <- struct{}{} }()
	g.mu.Lock()
	left := g.window
	now := time.Now()
	left.Left, left.Posts = true, merge(g.sent, now)
	// What was taken for full is full for the next one too.
	usable := left.Owner != "" && g.inFlight == 0 && now.After(g.fullUntil)
	g.window, g.verifiedAt = store.Window{}, time.Time{}
	g.mu.Unlock()
	if !usable {
		return
	}
	if _, err := g.w.store.PutWindow(ctx, g.name, left); err != nil {
		g.w.log.Info("the next to send to a receiver takes its window for full", "receiver", g.name, "error", err)
	}
}

// maxLeft bounds what is left of a window, of which the server takes no more than a message.
const maxLeft = 1000

// merge says how long before now POSTs ended, the oldest first. Of those that it takes together the last counts for all, so
// that none leaves the window too early.
func merge(sent []time.Time, now time.Time) []store.Posts {
	var merged []store.Posts
	for some := range slices.Chunk(sent, max(1, (len(sent)+maxLeft-1)/maxLeft)) {
		merged = append(merged, store.Posts{Age: now.Sub(some[len(some)-1]).Truncate(time.Millisecond), Count: len(some)})
	}
	return merged
}

// State is what a receiver's gate knows.
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
		if now.Before(g.fullUntil) {
			s.WindowUsed = r.RateLimit
		}
	}
	return s
}
