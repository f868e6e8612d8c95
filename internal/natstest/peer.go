package natstest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// errRefused is what a client gets from a peer that takes no connection.
var errRefused = errors.New("natstest: the peer refuses connections")

// Peer is a scripted NATS server for tests in virtual time. Clients connect
// over [net.Pipe], through [nats.InProcessServer], so a test can run in a
// testing/synctest bubble. It routes messages between its clients as a server
// does, and hands JetStream's API to handlers of the test.
//
// Handlers run one at a time, in the order in which their operations came, on
// a goroutine of the peer. A handler may call every method of the peer except
// Close, and may sleep, which delays what comes after it. Methods may be
// called from any goroutine.
type Peer struct {
	tb   testing.TB
	log  opLog
	in   *mailbox[arrival]
	done chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	refuse   bool
	paused   chan struct{} // closed when a pause ends; nil while there is none
	latency  func(conn int) (up, down func() time.Duration)
	lastConn int
	conns    []*peerConn
	handlers handlers
	link     farLink
}

// arrival is one operation of one connection, on its way to the dispatcher.
type arrival struct {
	conn *peerConn
	op   Op
}

// NewPeer starts a peer and closes it when the test ends. In a bubble it must
// be called with the bubble's own testing.TB, before anything else of nats.go.
// Tests with a bubble must not run in parallel with other tests that use
// nats.go: see EmptyTimerPool.
func NewPeer(tb testing.TB) *Peer {
	EmptyTimerPool()
	p := &Peer{
		tb:   tb,
		in:   newMailbox[arrival](),
		done: make(chan struct{}),
	}
	p.wg.Go(p.dispatch)
	tb.Cleanup(p.Close)
	return p
}

// Connect connects nats.go to the peer. The connection reconnects for ever
// unless the options say otherwise, and is closed when the test ends.
func (p *Peer) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return connect(tb, "", append([]nats.Option{nats.InProcessServer(p)}, opts...))
}

// InProcessConn opens a connection; it makes the peer a
// [nats.InProcessConnProvider].
func (p *Peer) InProcessConn() (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse || p.paused != nil {
		return nil, errRefused
	}
	client, ours := net.Pipe()
	p.lastConn++
	c := newPeerConn(p, p.lastConn, ours)
	p.conns = append(p.conns, c)
	p.wg.Go(c.read)
	p.wg.Go(c.arrive)
	p.wg.Go(c.write)
	return client, nil
}

// Cut closes all connections now. Data in flight in either direction is lost.
// Clients may reconnect at once.
func (p *Peer) Cut() {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
}

// Refuse makes the peer take no new connections, or take them again. Open
// connections stay.
func (p *Peer) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Pause makes the network silent in both directions. Data that is sent meanwhile
// arrives when the pause ends, as TCP would send it again, unless the
// connection was cut or closed in between. A paused peer also logs nothing. New
// connections are refused, but a handshake that has begun goes through.
func (p *Peer) Pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.paused == nil:
		p.paused = make(chan struct{})
	case !on && p.paused != nil:
		close(p.paused)
		p.paused = nil
	}
}

// Latency makes what is sent take time, from the next connection on: draw is
// given the number of a connection and returns what draws the time of each
// operation (up) and each frame (down), or nil for none. The handshake takes
// none. Order is kept. up and down are called from different goroutines, each
// from one at a time.
func (p *Peer) Latency(draw func(conn int) (up, down func() time.Duration)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = draw
}

// passPause waits while the peer is paused and says false if done came first.
func (p *Peer) passPause(done <-chan struct{}) bool {
	for {
		p.mu.Lock()
		paused := p.paused
		p.mu.Unlock()
		if paused == nil {
			return true
		}
		select {
		case <-paused:
		case <-done:
			return false
		}
	}
}

// Connections is how many clients are connected.
func (p *Peer) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Ops is every operation the peer has handled so far, of all connections.
func (p *Peer) Ops() []Op { return p.log.all() }

// ResetOps forgets the operations so far.
func (p *Peer) ResetOps() { p.log.reset() }

// Wait waits until cond is true of the operations so far. After half a minute
// (of virtual time, in a bubble) the test fails.
func (p *Peer) Wait(cond func([]Op) bool) {
	p.tb.Helper()
	if !p.log.wait(cond) {
		p.tb.Fatalf("natstest: the peer waited %s in vain; it got:\n%s", waitTimeout, describe(p.Ops()))
	}
}

// Close closes all connections and waits for the peer's goroutines. It is
// called when the test ends.
func (p *Peer) Close() {
	p.mu.Lock()
	wasClosed := p.closed
	p.closed = true
	p.mu.Unlock()
	if !wasClosed {
		close(p.done)
	}
	p.Cut()
	p.wg.Wait()
	EmptyTimerPool()
}

// forget takes a closed connection off the list.
func (p *Peer) forget(c *peerConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(other *peerConn) bool { return other == c })
}

// dispatch handles what the connections read, one operation at a time.
func (p *Peer) dispatch() {
	for {
		arrivals := p.in.take(p.done)
		if arrivals == nil {
			return
		}
		for _, a := range arrivals {
			if !p.passPause(p.done) {
				return
			}
			p.handle(a)
		}
	}
}

func (p *Peer) handle(a arrival) {
	if a.conn == nil {
		p.flow()
		return
	}
	switch a.op.Verb {
	case "PING":
		a.conn.send([]byte("PONG\r\n"))
	case "SUB":
		p.subscribe(a.conn, a.op)
	case "UNSUB":
		p.unsubscribe(a.conn, a.op)
	}
	// Logged when the peer knows of it and before handlers run: whoever waits
	// for a SUB may deliver to it, and a handler finds its own operation.
	p.log.add(a.op)
	if a.op.Verb != "PING" && !p.waits(a) {
		p.pass(a)
	}
}

// protocolError ends a connection that sent what no client should.
func (p *Peer) protocolError(c *peerConn, err error) {
	p.tb.Errorf("connection %d: %v", c.id, err)
	c.send(fmt.Appendf(nil, "-ERR 'Unknown Protocol Operation'\r\n"))
	c.close()
}
