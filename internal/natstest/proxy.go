package natstest

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy on loopback in front of a NATS server. Faults can be set at any time and by any goroutine. They affect all
// connections.
type Proxy struct {
	upstream string
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	refuse bool
	hole   bool
	stall  chan struct{} // closed when a stall ends; nil without a stall
	delay  time.Duration
	links  []*link
}

// NewProxy starts a proxy to the server with the URL upstream, and closes it when the test ends.
func NewProxy(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	p, err := ListenProxy(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// ListenProxy is like NewProxy, but for a process that is not a test. The caller must call Close.
func ListenProxy(upstream string) (*Proxy, error) {
	u, err := url.Parse(upstream)
	if err != nil {
		return nil, fmt.Errorf("natstest: proxy to %q: want a URL such as nats://127.0.0.1:4222: %w", upstream, err)
	}
	if u.Host == "" {
		return nil, fmt.Errorf("natstest: proxy to %q: no host, want a URL such as nats://127.0.0.1:4222", upstream)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("natstest: proxy to %s: %w", upstream, err)
	}
	p := &Proxy{upstream: u.Host, listener: listener}
	p.wg.Go(p.accept)
	return p, nil
}

// URL returns the URL of the proxy for clients. A server sends its clients the addresses of its cluster, so
// clients of a cluster need [nats.DontRandomize] and [nats.IgnoreDiscoveredServers] to stay behind the proxy.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Cut closes all connections now. Data in flight is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	links := p.links
	p.links = nil
	p.mu.Unlock()
	for _, l := range links {
		l.close()
	}
}

// Refuse sets whether the proxy closes every new connection at once. Open connections stay open.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// BlackHole discards all bytes in both directions while it is on. It accepts new connections, but sends them nothing. When it ends,
// connections that lost bytes are cut, because a TCP stream has no gaps.
func (p *Proxy) BlackHole(on bool) {
	p.mu.Lock()
	p.hole = on
	var torn []*link
	if !on {
		torn = slices.DeleteFunc(slices.Clone(p.links), func(l *link) bool { return !l.torn.Load() })
	}
	p.mu.Unlock()
	for _, l := range torn {
		l.close()
	}
}

// Stall holds all bytes in both directions while it is on, as a link that loses packets does. No data is lost, and no
// connection is closed. When the stall ends, all bytes arrive in order.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.stall == nil:
		p.stall = make(chan struct{})
	case !on && p.stall != nil:
		close(p.stall)
		p.stall = nil
	}
}

// stalled returns a channel that is closed when the stall ends, or nil if there is no stall.
func (p *Proxy) stalled() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stall
}

// Delay delays every byte by d in each direction, so that a round trip takes 2·d longer. It keeps the order and does not limit the rate.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Close closes the proxy and all its connections, and waits for its goroutines. A proxy of NewProxy is closed when the test ends.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	// This fails only if the listener is closed already.
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.connect(client) })
	}
}

// connect opens the second half of a client's connection.
func (p *Proxy) connect(client net.Conn) {
	if p.refuses() {
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", p.upstream, waitTimeout)
	if err != nil {
		// The server is gone, so close the client's connection too.
		_ = client.Close()
		return
	}
	l := newLink(p, client, server)
	p.mu.Lock()
	refused := p.closed || p.refuse
	if !refused {
		p.links = append(p.links, l)
	}
	p.mu.Unlock()
	if refused {
		l.close()
		return
	}
	l.run()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = slices.DeleteFunc(p.links, func(other *link) bool { return other == l })
}

func (p *Proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed || p.refuse
}

// faults returns the faults for a chunk that was just read.
func (p *Proxy) faults() (delay time.Duration, hole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay, p.hole
}
