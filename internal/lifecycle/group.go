// Package lifecycle gives every long-lived goroutine an owner that stops it and waits for it.
package lifecycle

import (
	"context"
	"sync"
)

// Group owns goroutines. The zero value is not usable; see [New].
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex // guards against a start after Stop
}

// New returns a group whose goroutines end with Stop.
func New() *Group {
	ctx, cancel := context.WithCancel(context.Background())
	return &Group{ctx: ctx, cancel: cancel}
}

// Go runs f on a goroutine of the group, and reports whether it did: a stopped
// group starts none. f must return soon after its context ends.
func (g *Group) Go(f func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	g.wg.Go(func() { f(g.ctx) })
	return true
}

// Stop ends the group's context. The group starts no goroutine afterwards. Stop does not wait, and may be called again.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel()
}

// Wait waits until all goroutines have ended. If ctx ends first, it returns ctx's error.
func (g *Group) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
