package feed

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cutter is a proxy in front of PostgreSQL that cuts a connection where a transaction would be committed, each time
// with a chance of one in often: either before the server gets the message, or once it has answered, so that
// the client does not learn what came of it.
type cutter struct {
	listener net.Listener
	target   string
	often    int
	off      atomic.Bool
	rate     atomic.Int64    // bytes that are sent in a second; 0: any
	cuts     [2]atomic.Int64 // of requests and of answers
	largest  atomic.Int64    // the most bytes that were sent for one answer
	wg       sync.WaitGroup
}

// newCutter returns a proxy and the DSN that leads through it.
func newCutter(t *testing.T, dsn string, often int) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{listener: l, target: u.Host, often: often}
	c.wg.Go(c.accept)
	t.Cleanup(func() { l.Close(); c.wg.Wait() })
	u.Host = l.Addr().String()
	return c, u.String()
}

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &cutLink{cutter: c, client: client, server: server}
		c.wg.Go(l.requests)
		c.wg.Go(l.answers)
	}
}

type cutLink struct {
	*cutter
	client, server net.Conn
	swallow        atomic.Bool
	sent           atomic.Int64 // since the last answer
}

func (l *cutLink) close() {
	l.client.Close()
	l.server.Close()
}

// commits reports whether the server commits when it has read this: a COMMIT, or the end of a statement that is its
// own transaction.
func commits(chunk []byte) bool {
	return bytes.Contains(chunk, []byte("commit\x00")) || bytes.HasSuffix(chunk, []byte{'S', 0, 0, 0, 4})
}

func (l *cutLink) requests() {
	defer l.close()
	buf := make([]byte, 1<<20)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		if sent := l.sent.Add(int64(n)); sent > l.largest.Load() {
			l.largest.Store(sent)
		}
		if commits(buf[:n]) && !l.off.Load() && rand.N(l.often) == 0 {
			if rand.N(2) == 0 {
				l.cuts[0].Add(1)
				return
			}
			l.swallow.Store(true)
		}
		if rate := l.rate.Load(); rate > 0 {
			<-time.After(time.Duration(n) * time.Second / time.Duration(rate))
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *cutLink) answers() {
	defer l.close()
	buf := make([]byte, 1<<20)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		l.sent.Store(0)
		if l.swallow.Load() {
			l.cuts[1].Add(1)
			return
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}
