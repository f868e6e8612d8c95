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

// errRefused is the client's error if the peer accepts no connections.
var errRefused = errors.New("natstest: the peer refuses connections")

// Peer is a scripted NATS server for tests in virtual time. Clients connect
// over [net.Pipe], through [nats.InProcessServer], so a test can run in a
// testing/synctest bubble. The peer routes messages between its clients as a
// server does, and passes requests of the JetStream API to the test's handlers.
//
// Handlers run one at a time, in the order of their operations, on a goroutine
// of the peer. A handler may call every method of the peer except Close. It
// may sleep, which delays later operations. All methods are safe for
// concurrent use.
type Peer struct {
	tb   testing.TB
	log  opLog
	in   *mailbox[arrival]
	done chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	refuse   bool
	paused   chan struct{} // closed when a pause ends; nil without a pause
	latency  func(conn int) (up, down func() time.Duration)
	lastConn int
	conns    []*peerConn
	handlers handlers
	link     farLink
}

// arrival is an operation of a connection, on its way to the dispatcher.
type arrival struct {
	conn *peerConn
	op   Op
}

// NewPeer starts a peer and closes it when the test ends. In a bubble, call it
// with the bubble's own testing.TB, before any other use of nats.go. Tests with
// a bubble must not run in parallel with other tests that use nats.go; see
// [EmptyTimerPool].
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

// Connect connects nats.go to the peer. By default, the connection reconnects forever. It is closed when the test ends.
func (p *Peer) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return connect(tb, "", append([]nats.Option{nats.InProcessServer(p)}, opts...))
}

// InProcessConn opens a connection. It implements [nats.InProcessConnProvider].
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

// Refuse sets whether the peer refuses new connections. Open connections stay open.
func (p *Peer) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Pause makes the network silent in both directions, or ends that. Data that is
// sent during a pause arrives when it ends, as TCP would resend it, unless the
// connection was cut or closed in between. A paused peer logs nothing. New
// connections are refused, but a handshake that has begun is completed.
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

// Latency sets the latency of new connections. draw gets the number of a
// connection. It returns functions that draw the latency of each operation (up)
// and of each frame (down), or nil for no latency. The handshake has none.
// Order is kept. up and down are called from different goroutines, but neither
// is called concurrently with itself.
func (p *Peer) Latency(draw func(conn int) (up, down func() time.Duration)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = draw
}

// passPause waits while the peer is paused. It returns false if done is closed first.
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

// Connections returns the number of connected clients.
func (p *Peer) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Ops returns all operations that the peer has handled so far, of all connections.
func (p *Peer) Ops() []Op { return p.log.all() }

// ResetOps clears the log of operations.
func (p *Peer) ResetOps() { p.log.reset() }

// Wait waits until the operations so far meet cond. After 30 s (of virtual time in a bubble), the test fails.
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

// forget removes a closed connection from the list.
func (p *Peer) forget(c *peerConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(other *peerConn) bool { return other == c })
}

// dispatch handles the operations of all connections, one at a time.
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
	// Log an operation after the peer has registered it and before handlers run. A
	// test that waits for a SUB can deliver to it, and a handler finds its operation.
	p.log.add(a.op)
	if a.op.Verb != "PING" && !p.waits(a) {
		p.pass(a)
	}
}

// protocolError closes a connection whose client violated the protocol.
func (p *Peer) protocolError(c *peerConn, err error) {
	p.tb.Errorf("connection %d: %v", c.id, err)
	c.send(fmt.Appendf(nil, "-ERR 'Unknown Protocol Operation'\r\n"))
	c.close()
}
