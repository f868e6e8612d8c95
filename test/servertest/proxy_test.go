package servertest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// proxied starts a server and a proxy in front of it, and connects a client to the proxy.
func proxied(t *testing.T, opts ...nats.Option) (*natstest.Proxy, *nats.Conn) {
	t.Helper()
	p := natstest.NewProxy(t, RunServer(t).URL())
	return p, natstest.Connect(t, p.URL(), opts...)
}

func TestProxyBlackHoleTearsAConnection(t *testing.T) {
	var cuts atomic.Int32
	p, nc := proxied(t, nats.DisconnectErrHandler(func(*nats.Conn, error) { cuts.Add(1) }))
	p.BlackHole(true)
	require.ErrorIs(t, nc.FlushTimeout(50*time.Millisecond), nats.ErrTimeout)
	require.Zero(t, cuts.Load(), "nothing is closed while the hole is there")
	_, err := nats.Connect(p.URL(), nats.Timeout(50*time.Millisecond))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	p.BlackHole(false)
	eventually(t, waitTimeout, "a disconnect", func() error {
		if cuts.Load() != 1 {
			return fmt.Errorf("%d disconnects, want 1", cuts.Load())
		}
		return nil
	})
	require.NoError(t, nc.FlushTimeout(waitTimeout))

	p.BlackHole(true)
	p.BlackHole(false)
	require.NoError(t, nc.FlushTimeout(waitTimeout))
	require.EqualValues(t, 1, cuts.Load(), "a hole that swallowed nothing does no harm")
}

func TestProxyDelayKeepsOrderAndRate(t *testing.T) {
	const oneWay = 20 * time.Millisecond
	p, nc := proxied(t)
	rtt := func() time.Duration {
		start := time.Now()
		require.NoError(t, nc.Flush())
		return time.Since(start)
	}
	rtt()

	const pieces = 1000
	sub, err := nc.SubscribeSync("a")
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(pieces, -1))
	body := strings.Repeat("x", 64<<10)
	send := func() time.Duration {
		start := time.Now()
		for i := range pieces {
			require.NoError(t, nc.Publish("a", fmt.Appendf(nil, "%d %s", i, body)))
		}
		for i := range pieces {
			m, err := sub.NextMsg(waitTimeout)
			require.NoError(t, err)
			require.True(t, bytes.HasPrefix(m.Data, fmt.Appendf(nil, "%d ", i)), "message %d is %.20q", i, m.Data)
		}
		return time.Since(start)
	}
	control := send()
	p.Delay(oneWay)
	require.GreaterOrEqual(t, rtt(), 2*oneWay)
	// In sequence, 1,000 delays would take 20 s. At the same time, they take a fraction of that.
	require.Less(t, send(), 3*control+pieces*oneWay/2)

	p.Delay(0)
	require.NoError(t, nc.Flush())
}
