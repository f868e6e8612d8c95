package work

import (
	"context"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// fresh reports whether this process owned the window so recently that another one which took over since then still assumes a full window.
func (g *receiverGate) fresh() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.verifiedAt) < g.w.cfg.Takeover/2
}

// ensureOwner makes sure that this process owns the window.
func (g *receiverGate) ensureOwner(ctx context.Context, r store.Receiver) error {
	select {
	case g.checking <- struct{}{}:
	case <-ctx.Done():
		return errStopping
	}
	defer func() { <-g.checking }()
	pin, _ := g.look()
	if pin == "" {
		return errStopping // a lane that ends has given up the window
	}
	if g.fresh() {
		return nil
	}
	begun := time.Now()
	found, err := g.w.store.Window(ctx, g.name)
	if err != nil {
		return err
	}
	// If the answer to an earlier write was lost, the window has this pin but another revision, and nothing was sent since.
	held := g.window != 0 && g.claimed == pin
	if found.Revision != 0 && (found.Revision == g.window || found.Pin == pin && !held) {
		if found.Pin == pin {
			g.claimed = pin
		}
		g.takeOver(found, begun)
		return nil
	}
	// A process writes a window only if the server confirms, after the read, that it has the pin. So if this process has had the pin since it took the
	// window, no other process has replaced the window: a client of the account or an operator has.
	switch now, err := g.confirm(ctx); {
	case err != nil:
		return err
	case now != pin:
		// The server assigns a new pin with the next delivery, and may have nothing to deliver until this entry is handed back.
		g.unpin(pin)
		return errStopping
	}
	taken := claim(pin, r, found, g.w.cfg.Takeover)
	if taken.Revision, err = g.w.store.PutWindow(ctx, g.name, taken); err != nil {
		return fmt.Errorf("take over the window: %w", err)
	}
	if g.claimed = pin; held {
		g.window = taken.Revision // so that takeOver keeps the POSTs that this process has counted
	}
	g.takeOver(taken, begun)
	return nil
}

// claim returns the window that replaces found, with the POSTs that may still count.
func claim(pin string, r store.Receiver, found store.Window, takeover time.Duration) store.Window {
	claimed := store.Window{Pin: pin, Posts: found.Posts, Revision: found.Revision}
	if found.Revision != 0 && !found.Left {
		// The times of the previous owner's last POSTs are unknown, so the window counts as full. If that process was stalled, it may still make some.
		claimed.Posts = []gate.Posts{{Age: -takeover / 2, Count: r.RateLimit}}
	}
	return claimed
}

// takeOver counts the POSTs in a window that this process has just taken. If it owned the window already, it keeps its count.
func (g *receiverGate) takeOver(taken store.Window, begun time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.verifiedAt = begun; taken.Revision == g.window {
		return
	}
	g.window = taken.Revision
	// Ages count from now, and not from an earlier time: the previous owner may have made POSTs until the new window was written, and it is unknown how
	// long ago it saved their ages.
	g.gate.SetWindow(taken.Posts, g.w.cfg.Takeover, time.Now())
}

// stop prevents further POSTs, and saves the window. The lane gives up its pin after that, so the next process finds the saved window.
func (g *receiverGate) stop() {
	pin, _ := g.look()
	g.unpin(pin)
	g.leave()
}

// leave saves the ages of the last POSTs for the next owner. If a POST is in flight, its release calls leave again.
func (g *receiverGate) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.w.ctx), g.w.cfg.Takeover)
	defer cancel()
	g.checking <- struct{}{}
	defer func() { <-g.checking }()
	g.mu.Lock()
	now := time.Now()
	left := store.Window{Revision: g.window, Left: true, Posts: g.gate.Window(now)}
	usable := g.window != 0 && g.gate.State(gate.Config{}, now).InFlight == 0
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
