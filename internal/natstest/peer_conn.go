package natstest

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// maxPayload is what the peer offers clients as the largest payload.
const maxPayload = 1 << 20

// peerConn is the peer's end of one connection. Three goroutines own it: read
// never waits for anything but the client, arrive hands to the dispatcher what
// has come up the wire, and write sends what has come down. So the client can
// always write, and nobody waits for it to read.
type peerConn struct {
	peer *Peer
	id   int
	pipe net.Conn
	up   *wire[Op]
	down *wire[[]byte]
	done chan struct{}
	once sync.Once

	// The peer's mutex guards the rest.
	echo         bool // messages of this client go to its own subscriptions too
	noResponders bool
	subs         []*peerSub
}

// peerSub is one subscription.
type peerSub struct {
	conn           *peerConn
	subject, queue string
	sid            string
	max, delivered int
}

func newPeerConn(p *Peer, id int, pipe net.Conn) *peerConn {
	c := &peerConn{peer: p, id: id, pipe: pipe, done: make(chan struct{}), echo: true}
	c.up, c.down = newWire[Op](), newWire[[]byte]()
	if p.latency != nil {
		c.up.delay, c.down.delay = p.latency(id)
	}
	info, err := json.Marshal(map[string]any{
		"server_id":   "PEER",
		"server_name": "peer",
		"version":     server.VERSION,
		"proto":       1,
		"headers":     true,
		"jetstream":   true,
		"max_payload": maxPayload,
		"client_id":   id,
	})
	if err != nil {
		panic(err) // a map of plain values can always be encoded
	}
	c.send(fmt.Appendf(nil, "INFO %s\r\n", info))
	return c
}

// send queues bytes for the client.
func (c *peerConn) send(b []byte) { c.down.put(b) }

// close closes the connection without waiting for its goroutines.
func (c *peerConn) close() {
	c.once.Do(func() {
		close(c.done)
		// Closing a pipe cannot fail in a way that matters here.
		_ = c.pipe.Close()
	})
}

func (c *peerConn) read() {
	defer c.peer.forget(c)
	defer c.close()
	parser := opParser{emit: func(op Op) {
		op.Conn = c.id
		c.up.put(op)
	}}
	buf := make([]byte, 32<<10)
	for {
		n, err := c.pipe.Read(buf)
		if parseErr := parser.feed(buf[:n], true); parseErr != nil {
			c.peer.protocolError(c, parseErr)
			return
		}
		if err != nil {
			return
		}
	}
}

// arrive hands operations to the dispatcher when they are due.
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
	c.down.run(c.done, func(b []byte) bool {
		if !c.peer.passPause(c.done) {
			return false
		}
		_, err := c.pipe.Write(b)
		return err == nil
	})
}

// connect takes the client's CONNECT.
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

// open says whether the connection is still there.
func (c *peerConn) open() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}
