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
	mu     sync.Mutex // prevents starts after Stop
}

// New returns a group whose goroutines end with Stop.
func New() *Group {
	ctx, cancel := context.WithCancel(context.Background())
	return &Group{ctx: ctx, cancel: cancel}
}

// Go runs f on a goroutine of the group. If the group was stopped, it does not run f and returns false. f must return soon after its context ends.
func (g *Group) Go(f func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	g.wg.Go(func() { f(g.ctx) })
	return true
}

// Stop ends the group's context and prevents further starts. It does not wait, and may be called again.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel()
}

// Wait returns nil when all goroutines have ended, or ctx's error if ctx ends first.
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
