package webhook

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipes is a listener of connections in memory, and their dialer.
type pipes struct {
	net.Listener // of the address only
	conns        chan net.Conn
	last         *lossy // that was dialled
	dials        int
	end          func()
}

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipes) Close() error { p.end(); return nil }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	p.last = &lossy{Conn: client}
	p.dials++
	return p.last, nil
}

// lossy is a connection on which nothing arrives any more, and which nobody closes.
type lossy struct {
	net.Conn
	dead atomic.Bool
}

func (c *lossy) Write(b []byte) (int, error) {
	if c.dead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A receiver whose connection has died without a word, as behind a firewall that has forgotten it, is dialled again: all
// requests to an HTTP/2 receiver go over one connection, which the end of one request does not close.
func TestADeadConnectionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Proto", r.Proto) }))
		require.NoError(t, srv.Listener.Close())
		conns := make(chan net.Conn, 1)
		p := &pipes{Listener: srv.Listener, conns: conns, end: sync.OnceFunc(func() { close(conns) })}
		srv.Listener, srv.EnableHTTP2 = p, true
		srv.StartTLS()
		defer srv.Close()
		const timeout = 4 * time.Second // no multiple of it ends with the wait for a ping
		c := NewClient(Policy{Any: true}, timeout)
		defer c.Close()
		transport := c.http.Transport.(*http.Transport)
		transport.DialContext = p.dial
		transport.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
		send := func() error {
			a, err := post(t, c, Request{URL: srv.URL})
			if err == nil {
				require.Equal(t, "HTTP/2.0", a.Header.Get("Proto"))
			}
			return err
		}
		require.NoError(t, send())
		require.NoError(t, send())
		require.Equal(t, 1, p.dials)
		p.last.dead.Store(true)
		failed := 0
		for send() != nil {
			failed++
			require.LessOrEqual(t, time.Duration(failed)*timeout, pingAfter+pingTime+timeout)
		}
		require.NotZero(t, failed)
		require.Equal(t, 2, p.dials)
	})
}
