package natstest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Connect connects to a real server. By default, the connection reconnects forever, after about 20 ms. It is closed when the test
// ends.
func Connect(tb testing.TB, url string, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return connect(tb, url, append([]nats.Option{
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectJitter(5*time.Millisecond, 5*time.Millisecond),
	}, opts...))
}

// connect connects nats.go with options for tests, and closes the connection when the test ends.
func connect(tb testing.TB, url string, opts []nats.Option) *nats.Conn {
	tb.Helper()
	logf := logUntilEnd(tb)
	defaults := []nats.Option{
		nats.Name(tb.Name()),
		nats.MaxReconnects(-1),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if sub != nil {
				err = fmt.Errorf("subscription on %s: %w", sub.Subject, err)
			}
			logf("natstest: connection: %v", err)
		}),
	}
	nc, err := nats.Connect(url, append(defaults, opts...)...)
	if err != nil {
		tb.Fatalf("natstest: connect to %q: %v", url, err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// logUntilEnd returns a tb.Logf for callbacks of nats.go. They may be called after the test has ended, when tb.Logf would panic.
func logUntilEnd(tb testing.TB) func(format string, args ...any) {
	var mu sync.Mutex
	ended := false
	tb.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	})
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			tb.Logf(format, args...)
		}
	}
}

// EmptyTimerPool empties the process-wide pool in which nats.go keeps timers. nats.go uses one at each Flush, and so at each
// reconnect. A timer from another bubble, or a bubble's timer outside of it, ends the process with "synctest timer from outside
// bubble". A sync.Pool drops an item that was unused for two garbage collections. EmptyTimerPool is called wherever bubbles and
// real servers may follow each other: at the start and end of a peer, and at the start of a server.
func EmptyTimerPool() {
	runtime.GC()
	runtime.GC()
}
