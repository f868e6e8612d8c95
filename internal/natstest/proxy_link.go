package natstest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkSize = 64 << 10
	// linkBuffer is the maximum number of bytes in flight in one direction. It is more than a loopback transfers in any delay of a test.
	// Beyond it, the sender waits, as for the window of a real connection.
	linkBuffer = 256 << 20
)

// link is a connection through the proxy. Each direction has one goroutine that reads and one that writes.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	done           chan struct{}
	once           sync.Once
	torn           atomic.Bool // bytes were discarded
}

// chunk is a piece of the stream and the time at which it must arrive.
type chunk struct {
	due   time.Time
	bytes []byte
}

func newLink(p *Proxy, client, server net.Conn) *link {
	return &link{proxy: p, client: client, server: server, done: make(chan struct{})}
}

// run transfers bytes until either side closes the link.
func (l *link) run() {
	var wg sync.WaitGroup
	up, down := newPipeline(), newPipeline()
	wg.Go(func() { l.read(l.client, up) })
	wg.Go(func() { l.write(l.server, up) })
	wg.Go(func() { l.read(l.server, down) })
	wg.Go(func() { l.write(l.client, down) })
	wg.Wait()
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		// The connection is dropped, so errors do not matter.
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// read reads a connection into the pipeline, and stamps each chunk with the time at which it must arrive. A writer never waits longer than
// the delay, so the proxy does not limit the rate.
func (l *link) read(from net.Conn, to *pipeline) {
	defer to.chunks.end()
	buf := make([]byte, chunkSize)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			delay, hole := l.proxy.faults()
			if hole {
				l.torn.Store(true)
			} else if !to.put(chunk{due: time.Now().Add(delay), bytes: bytes.Clone(buf[:n])}, l.done) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// write writes the chunks of the pipeline when they are due. When the other side has ended, it closes the link after the last byte.
func (l *link) write(to net.Conn, from *pipeline) {
	defer l.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		chunks := from.chunks.take(l.done)
		if chunks == nil {
			return
		}
		for _, c := range chunks {
			if !l.waitUntil(c.due, timer) || !l.passStall() {
				return
			}
			// The black hole also discards bytes in flight.
			if _, hole := l.proxy.faults(); hole {
				l.torn.Store(true)
			} else if _, err := to.Write(c.bytes); err != nil {
				return
			}
			from.release(len(c.bytes))
		}
	}
}

// waitUntil waits until due. It returns false if the link is closed first.
func (l *link) waitUntil(due time.Time, timer *time.Timer) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return true
	}
	timer.Reset(wait)
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

// passStall waits for the end of a stall. It returns false if the link is closed first.
func (l *link) passStall() bool {
	for stall := l.proxy.stalled(); stall != nil; stall = l.proxy.stalled() {
		select {
		case <-stall:
		case <-l.done:
			return false
		}
	}
	return true
}

// pipeline holds the bytes in flight in one direction.
type pipeline struct {
	chunks *mailbox[chunk]
	freed  chan struct{} // has a token when bytes are released
	size   atomic.Int64
}

func newPipeline() *pipeline {
	return &pipeline{chunks: newMailbox[chunk](), freed: make(chan struct{}, 1)}
}

// put appends a chunk. It returns false if done is closed before there is space.
func (p *pipeline) put(c chunk, done <-chan struct{}) bool {
	for p.size.Load() > linkBuffer {
		select {
		case <-p.freed:
		case <-done:
			return false
		}
	}
	p.size.Add(int64(len(c.bytes)))
	p.chunks.put(c)
	return true
}

func (p *pipeline) release(n int) {
	p.size.Add(-int64(n))
	select {
	case p.freed <- struct{}{}:
	default:
	}
}
