package jsstream

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// sameStream is by how much the time at which a stream was created may differ between servers.
const sameStream = time.Second

// Progress is how far a stream was read.
type Progress struct {
	mu      sync.Mutex
	seq     uint64
	more    chan struct{} // closed when seq grows
	created time.Time     // the stream
}

// NewProgress is that nothing was read.
func NewProgress() *Progress { return &Progress{more: make(chan struct{})} }

// Reach notes how far the stream was read.
func (p *Progress) Reach(seq uint64) { p.reach(seq, time.Time{}) }

// reach is Reach, unless another stream is read by now than the one that was created at that time. The zero time: it is the same.
func (p *Progress) reach(seq uint64, of time.Time) {
	p.mu.Lock()
	if seq <= p.seq || !of.IsZero() && !p.created.IsZero() && of.Sub(p.created).Abs() > sameStream {
		p.mu.Unlock()
		return
	}
	waiting := p.more
	p.seq, p.more = seq, make(chan struct{})
	p.mu.Unlock()
	close(waiting)
}

// begin is that nothing was read of a stream that was created at that time.
func (p *Progress) begin(created time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq, p.created = 0, created
}

// other reports whether a stream is not the one that was read: sequences begin at 1 again after it was deleted and created again.
func (p *Progress) other(info *jetstream.StreamInfo) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return info.State.LastSeq < p.seq || info.Created.Sub(p.created).Abs() > sameStream
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
