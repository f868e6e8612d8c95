package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// conn is one connection to a broker, kept alive, with one request at a time.
// It does no more than HTTP needs: it shares the processors with the broker.
type conn struct {
	net.Conn
	host    string
	channel string // its path
	in      *bufio.Reader
	out     bytes.Buffer
}

func (p *process) dial(ctx context.Context) (*conn, error) {
	host := strings.TrimSuffix(strings.TrimPrefix(p.url, "http://"), "/")
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: raw, host: host, channel: p.channel(), in: bufio.NewReader(raw)}, nil
}

// dialAll makes connections that last as long as this process.
func (p *process) dialAll(ctx context.Context, n int) (chan *conn, error) {
	all := make(chan *conn, n)
	for range n {
		c, err := p.dial(ctx)
		if err != nil {
			return nil, err
		}
		all <- c
	}
	return all, nil
}

func (c *conn) close() { _ = c.Close() }

// call makes one request.
func (c *conn) call(method, path string, header http.Header, body []byte) (status int, answer []byte, err error) {
	c.out.Reset()
	c.out.WriteString(method + " " + path + " HTTP/1.1\r\nHost: " + c.host + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n")
	for name, values := range header {
		c.out.WriteString(name + ": " + values[0] + "\r\n")
	}
	c.out.WriteString("\r\n")
	c.out.Write(body)
	if _, err := c.Write(c.out.Bytes()); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, errors.Join(err, resp.Body.Close())
}

// expect makes one request and checks its status.
func (c *conn) expect(want int, method, path string, header http.Header, body []byte) ([]byte, error) {
	status, answer, err := c.call(method, path, header, body)
	if err == nil && status != want {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, status, answer)
	}
	return answer, err
}
