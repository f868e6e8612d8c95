package natsembed

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// connBuffer is the number of bytes of a connection that may wait for the server before a write blocks.
	connBuffer = 4 << 20
	// closeTime bounds how long Close waits for the server to read the data written before.
	closeTime = 5 * time.Second
)

// dialer hands out connections to a server in this process.
type dialer struct{ srv *Server }

func (d dialer) InProcessConn() (net.Conn, error) {
	srv := d.srv.Unwrap()
	if srv == nil {
		return nil, errors.New("natsembed: the server was not started")
	}
	pipe, err := srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: pipe, written: make(chan struct{})}
	c.changed.L = &c.mu
	go c.write()
	return c, nil
}

// conn puts a buffer before the server's pipe, as a socket has. A write to the bare pipe returns only when the server has
// read everything. The client holds its lock during a write, so every publisher would wait while the server works.
type conn struct {
	net.Conn
	written chan struct{} // closed when write has ended

	mu      sync.Mutex
	changed sync.Cond
	due     []byte
	spare   []byte // memory of the last write, for reuse
	closed  bool
	err     error // of a write; later writes return it
}

// Write buffers p and returns. If a write to the pipe fails, the next Write returns the error.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.due) > 0 && len(c.due)+len(p) > connBuffer && c.err == nil && !c.closed {
		c.changed.Wait()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.closed:
		return 0, net.ErrClosed
	}
	c.due = append(c.due, p...)
	c.changed.Broadcast()
	return len(p), nil
}

// write writes buffered data to the pipe until the connection is closed.
func (c *conn) write() {
	defer close(c.written)
	for {
		c.mu.Lock()
		for len(c.due) == 0 && !c.closed {
			c.changed.Wait()
		}
		due := c.due
		c.due, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		if len(due) == 0 {
			return
		}
		_, err := c.Conn.Write(due)
		c.mu.Lock()
		c.spare, c.err = due[:0], err
		c.changed.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Close closes the connection when the server has read all data written, or after closeTime.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	_ = c.Conn.SetWriteDeadline(time.Now().Add(closeTime))
	<-c.written
	return c.Conn.Close()
}

// SetWriteDeadline does nothing: a write waits only while the buffer is full, and until the connection is closed.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline sets the deadline of reads.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }
