package natstest

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// maxPayload is the maximum payload that the peer announces, in bytes.
const maxPayload = 1 << 20

// peerConn is the peer's end of a connection. Three goroutines own it. read
// waits only for the client. arrive passes operations to the dispatcher when
// they are due, and write sends frames to the client when they are due. So the
// client can always write, and only write waits for it to read.
type peerConn struct {
	peer *Peer
	id   int
	pipe net.Conn
	up   *wire[Op]
	down *wire[outgoing]
	done chan struct{}
	once sync.Once

	greeted bool // the handshake is done; used only by read

	// Guarded by the peer's mutex.
	echo         bool // the client's messages go to its own subscriptions too
	noResponders bool
	subs         []*peerSub
}

// outgoing is bytes for the client.
type outgoing struct {
	bytes []byte
	now   bool // not held back by a pause
}

// peerSub is one subscription.
type peerSub struct {
	conn           *peerConn
	subject, queue string
	literal        string // the part of the subject before a wildcard
	sid            string
	max, delivered int
	near, far      bool // known to the clients' server, and to that of JetStream; see farLink
}

func newPeerConn(p *Peer, id int, pipe net.Conn) *peerConn {
	c := &peerConn{peer: p, id: id, pipe: pipe, done: make(chan struct{}), echo: true}
	c.up, c.down = newWire[Op](), newWire[outgoing]()
	if p.latency != nil {
		c.up.delay, c.down.delay = p.latency(id)
	}
	info, err := json.Marshal(map[string]any{
		"server_id":   "PEER",
		"server_name": "peer",
		"version":     ServerVersion,
		"proto":       1,
		"headers":     true,
		"jetstream":   true,
		"max_payload": maxPayload,
		"client_id":   id,
	})
	if err != nil {
		panic(err) // a map of plain values can always be encoded
	}
	c.sendNow(fmt.Appendf(nil, "INFO %s\r\n", info))
	return c
}

// send queues bytes for the client.
func (c *peerConn) send(b []byte) { c.down.put(outgoing{bytes: b}) }

// sendNow sends bytes without latency, even during a pause.
func (c *peerConn) sendNow(b []byte) { c.down.putNow(outgoing{bytes: b, now: true}) }

// close closes the connection without waiting for its goroutines.
func (c *peerConn) close() {
	c.once.Do(func() {
		close(c.done)
		// Errors of closing a pipe do not matter here.
		_ = c.pipe.Close()
	})
}

func (c *peerConn) read() {
	defer c.peer.forget(c)
	defer c.close()
	parser := opParser{emit: func(op Op) {
		op.Conn = c.id
		if !c.greet(op) {
			c.up.put(op)
		}
	}}
	buf := make([]byte, 32<<10)
	for {
		n, err := c.pipe.Read(buf)
		if parseErr := parser.feed(buf[:n]); parseErr != nil {
			c.peer.protocolError(c, parseErr)
			return
		}
		if err != nil {
			return
		}
	}
}

// greet reports whether an operation is part of the handshake, and answers it
// at once. nats.go holds the connection's mutex during the handshake. If that
// took virtual time (latency, a pause, or a handler that sleeps), a goroutine
// that waits for the mutex would keep the bubble's clock from advancing.
func (c *peerConn) greet(op Op) bool {
	if c.greeted {
		return false
	}
	op.At = time.Now()
	switch op.Verb {
	case "CONNECT":
		c.connect(op.Body)
	case "PING":
		c.greeted = true
		c.sendNow([]byte("PONG\r\n"))
	default:
		c.greeted = true
		return false
	}
	c.peer.log.add(op)
	return true
}

// arrive passes operations to the dispatcher when they are due.
func (c *peerConn) arrive() {
	c.up.run(c.done, func(op Op) bool {
		op.At = time.Now()
		c.peer.in.put(arrival{conn: c, op: op})
		return true
	})
}

// write sends frames to the client when they are due.
func (c *peerConn) write() {
	defer c.close()
	c.down.run(c.done, func(out outgoing) bool {
		if !out.now && !c.peer.passPause(c.done) {
			return false
		}
		_, err := c.pipe.Write(out.bytes)
		return err == nil
	})
}

// connect handles the client's CONNECT.
func (c *peerConn) connect(body []byte) {
	options := struct {
		Echo         bool `json:"echo"`
		NoResponders bool `json:"no_responders"`
	}{Echo: true}
	if err := json.Unmarshal(body, &options); err != nil {
		c.peer.protocolError(c, fmt.Errorf("natstest: CONNECT %q: %w", body, err))
		return
	}
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	c.echo, c.noResponders = options.Echo, options.NoResponders
}

// open reports whether the connection is open.
func (c *peerConn) open() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}
