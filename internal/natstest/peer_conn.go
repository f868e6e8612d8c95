package natstest

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// maxPayload is what the peer offers clients as the largest payload.
const maxPayload = 1 << 20

// peerConn is the peer's end of one connection. Two goroutines own it: read
// never waits for anything but the client, and write takes what others leave
// in out. So the client can always write, and nobody waits for it to read.
type peerConn struct {
	peer *Peer
	id   int
	pipe net.Conn
	out  *mailbox[[]byte]
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
	c := &peerConn{peer: p, id: id, pipe: pipe, out: newMailbox[[]byte](), done: make(chan struct{}), echo: true}
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
func (c *peerConn) send(b []byte) { c.out.put(b) }

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
		c.peer.in.put(arrival{conn: c, op: op})
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

func (c *peerConn) write() {
	defer c.close()
	for {
		frames := c.out.take(c.done)
		if frames == nil {
			return
		}
		for _, frame := range frames {
			if !c.peer.passPause(c.done) {
				return
			}
			if _, err := c.pipe.Write(frame); err != nil {
				return
			}
		}
	}
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
