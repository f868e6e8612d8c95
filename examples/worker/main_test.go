package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jetpull/jetpull/test/servertest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// TestSIGTERM lets the signal come while handlers run: those finish, and
// nothing else is started.
func TestSIGTERM(t *testing.T) {
	const stopAfter = 20
	srv := servertest.RunServer(t)
	js := srv.JetStream(t, srv.Connect(t))
	var started, finished, late atomic.Int64
	stopping := make(chan struct{})
	var once sync.Once
	var out bytes.Buffer
	require.NoError(t, run(srv.URL(), &out, func(ctx context.Context, _ *jetpull.Msg) error {
		n := started.Add(1)
		if n == stopAfter {
			once.Do(func() {
				assert.Eventually(t, func() bool {
					c, err := js.Consumer(ctx, stream, consumer)
					return err == nil && c.CachedInfo().Delivered.Consumer > stopAfter+2*workers
				}, 10*time.Second, time.Millisecond, "more is read ahead than is handled")
				if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
					t.Errorf("SIGTERM: %v", err)
				}
				close(stopping)
			})
		}
		if n >= stopAfter {
			// A handler that runs when the signal comes is not cancelled.
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				t.Error("cancelled before DrainTimeout")
			}
			late.Add(1)
		}
		finished.Add(1)
		return nil
	}))
	<-stopping
	require.Equal(t, started.Load(), finished.Load(), "all that were started have finished")
	require.LessOrEqual(t, late.Load(), int64(8), "hardly anything was started after the signal")
	var handled, back, left int64
	_, err := fmt.Sscanf(out.String(), "handled %d orders, handed %d back, %d are left for others\n", &handled, &back, &left)
	require.NoError(t, err, "output %q", out.String())
	require.Equal(t, finished.Load(), handled)
	require.Positive(t, back)
	require.EqualValues(t, orders, handled+left)
}
