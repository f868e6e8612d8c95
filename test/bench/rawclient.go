package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"

	"github.com/nats-io/nats.go"
)

// rawClient speaks just enough of the NATS protocol to pull: one connection, one subscription, one reader that is also
// the writer. Nothing stands between it and the socket, so what it reaches is the limit for any client that waits for
// each message before it asks for the next one.
type rawClient struct {
	conn  net.Conn
	in    *bufio.Reader
	out   []byte // the write under construction, reused
	reply []byte // ack subject of the last message, reused
	body  []byte // payload of the last message, reused
	inbox string
	pull  string // protocol text that asks for one message
}

const rawConnect = `CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1,` +
	`"lang":"go","version":"0","name":"bench-raw"}` + "\r\n"

// dialRaw connects and subscribes. Calling off ctx closes the connection, which ends a read that waits.
func dialRaw(ctx context.Context, serverURL, pullSubject string) (*rawClient, error) {
	u, err := url.Parse(serverURL)
	if err != nil {
		return nil, fmt.Errorf("server URL %q: %w", serverURL, err)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	inbox := nats.NewInbox()
	c := &rawClient{
		conn:  conn,
		in:    bufio.NewReaderSize(conn, 64<<10),
		inbox: inbox,
		pull:  fmt.Sprintf("PUB %s %s %d\r\n%s\r\n", pullSubject, inbox, len(pullOne), pullOne),
	}
	if _, err := io.WriteString(conn, rawConnect+"SUB "+inbox+" 1\r\n"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := c.flush(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// next asks for one message and, in the same write, acknowledges the one before, if there was one.
func (c *rawClient) next() error {
	c.out = c.out[:0]
	c.appendAck()
	c.out = append(c.out, c.pull...)
	return c.exchange()
}

// ackNext does the same with the server's own verb for it: +NXT in the ack of the message before.
func (c *rawClient) ackNext() error {
	if len(c.reply) == 0 {
		return c.next()
	}
	c.out = append(c.out[:0], "PUB "...)
	c.out = append(c.out, c.reply...)
	c.out = append(c.out, ' ')
	c.out = append(c.out, c.inbox...)
	c.out = append(c.out, ' ')
	c.out = strconv.AppendInt(c.out, int64(len("+NXT ")+len(pullOne)), 10)
	c.out = append(c.out, "\r\n+NXT "+pullOne+"\r\n"...)
	return c.exchange()
}

func (c *rawClient) appendAck() {
	if len(c.reply) == 0 {
		return
	}
	c.out = append(c.out, "PUB "...)
	c.out = append(c.out, c.reply...)
	c.out = append(c.out, " 4\r\n+ACK\r\n"...)
}

func (c *rawClient) exchange() error {
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	return c.readMessage()
}

// finish acknowledges the last message and waits until the server has read that.
func (c *rawClient) finish() error {
	c.out = c.out[:0]
	c.appendAck()
	if len(c.out) > 0 {
		if _, err := c.conn.Write(c.out); err != nil {
			return err
		}
	}
	return c.flush()
}

// flush sends a PING and reads up to its PONG.
func (c *rawClient) flush() error {
	if _, err := io.WriteString(c.conn, "PING\r\n"); err != nil {
		return err
	}
	for {
		line, err := c.readLine()
		if err != nil {
			return err
		}
		if bytes.Equal(line, []byte("PONG")) {
			return nil
		}
	}
}

// readLine returns the next protocol line but passes over INFO, answers PING and turns -ERR into an error.
func (c *rawClient) readLine() ([]byte, error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case bytes.HasPrefix(line, []byte("INFO ")): // the server sends another one after CONNECT
		case bytes.Equal(line, []byte("PING")):
			if _, err := io.WriteString(c.conn, "PONG\r\n"); err != nil {
				return nil, err
			}
		case bytes.HasPrefix(line, []byte("-ERR")):
			return nil, fmt.Errorf("server answered %s", line)
		default:
			return line, nil
		}
	}
}

// readMessage reads one MSG frame into reply and body. A status comes as HMSG and is an error: with a message for
// every pull there is nothing a status could say.
func (c *rawClient) readMessage() error {
	line, err := c.readLine()
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(line, []byte("MSG "))
	if !ok {
		return fmt.Errorf("expected a message, the server sent %q", line)
	}
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // subject
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // sid
	reply, digits, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return fmt.Errorf("message without an ack subject: %q", line)
	}
	size := 0
	for _, d := range digits {
		size = size*10 + int(d-'0')
	}
	c.reply = append(c.reply[:0], reply...)
	if cap(c.body) < size+2 {
		c.body = make([]byte, size+2)
	}
	_, err = io.ReadFull(c.in, c.body[:size+2])
	c.body = c.body[:size]
	return err
}

func (c *rawClient) close() { _ = c.conn.Close() }
