package jsstream

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// sameStream is the maximum difference between servers in the time at which a stream was created.
const sameStream = time.Second

// Progress is the position up to which a stream was read.
type Progress struct {
	mu      sync.Mutex
	seq     uint64
	more    chan struct{} // closed when seq grows
	created time.Time     // when the stream was created
}

// NewProgress returns a Progress for a stream that was not read yet.
func NewProgress() *Progress { return &Progress{more: make(chan struct{})} }

// Reach records that the stream was read up to seq.
func (p *Progress) Reach(seq uint64) { p.reach(seq, time.Time{}) }

// reach is like Reach, but does nothing if the stream that was created at that time is no longer the one that is read. Zero skips this check.
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

// begin records that nothing was read yet of a stream that was created at that time.
func (p *Progress) begin(created time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq, p.created = 0, created
}

// other reports whether a stream is not the one that was read, because it was deleted and recreated. Sequences then start at 1 again.
func (p *Progress) other(info *jetstream.StreamInfo) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return info.State.LastSeq < p.seq || info.Created.Sub(p.created).Abs() > sameStream
}

// Reached returns the sequence up to which the stream was read.
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
