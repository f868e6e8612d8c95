package natsembed

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// connBuffer is how many bytes of one connection may wait for the server before a write waits too.
	connBuffer = 4 << 20
	// closeTime bounds how long a close waits for the server to read what was written before it.
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

// conn puts a buffer before the server's pipe, as a socket has. A write to the bare pipe returns once the server has
// read it all, and the client writes with its lock held: while the server works, every publisher would wait.
type conn struct {
	net.Conn
	written chan struct{} // closed when write has ended

	mu      sync.Mutex
	changed sync.Cond
	due     []byte
	spare   []byte // memory of what was written last
	closed  bool
	err     error // of a write, returned by those that follow
}

// Write takes p and returns; a write that fails is reported by the next one.
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

// write writes what is due until the connection is closed.
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

// Close ends the connection once the server has read what was written.
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
