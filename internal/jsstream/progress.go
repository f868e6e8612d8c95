package jsstream

import (
	"context"
	"sync"
)

// Progress is how far a stream was read.
type Progress struct {
	mu   sync.Mutex
	seq  uint64
	more chan struct{} // closed when seq grows
}

// NewProgress is that nothing was read.
func NewProgress() *Progress { return &Progress{more: make(chan struct{})} }

// Reach notes how far the stream was read.
func (p *Progress) Reach(seq uint64) {
	p.mu.Lock()
	if seq <= p.seq {
		p.mu.Unlock()
		return
	}
	waiting := p.more
	p.seq, p.more = seq, make(chan struct{})
	p.mu.Unlock()
	close(waiting)
}

// Reached reports how far the stream was read.
func (p *Progress) Reached() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// Wait returns when the stream was read up to seq.
func (p *Progress) Wait(ctx context.Context, seq uint64) error {
	for {
		p.mu.Lock()
		reached, more := p.seq >= seq, p.more
		p.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
