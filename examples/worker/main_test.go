package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

// TestSIGTERM sends SIGTERM while handlers run. They finish, and hardly any others start.
func TestSIGTERM(t *testing.T) {
	const stopAfter = 20
	srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	defer srv.Stop()
	nc, err := srv.Connect()
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
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
			// A handler that is running when the signal arrives is not cancelled.
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
	begin, end, _ := strings.Cut(out.String(), "\n")
	require.Equal(t, "working off 500 orders; Ctrl-C or SIGTERM ends", begin)
	_, err = fmt.Sscanf(end, "handled %d orders, handed %d back, %d are left for others\n", &handled, &back, &left)
	require.NoError(t, err, "output %q", out.String())
	require.Equal(t, finished.Load(), handled)
	require.Positive(t, back)
	require.EqualValues(t, orders, handled+left)
}

// lines receives what is written, one line per Write.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestIdle checks that the worker reports when all orders are handled, and that only the signal ends it.
func TestIdle(t *testing.T) {
	out := make(lines, 10)
	done := make(chan error, 1)
	go func() { done <- run("", out, func(context.Context, *jetpull.Msg) error { return nil }) }()
	next := func() string {
		select {
		case line := <-out:
			return line
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		case <-time.After(time.Minute):
			t.Fatal("nothing was written")
		}
		return ""
	}
	require.Contains(t, next(), "working off")
	require.Contains(t, next(), "idle: all orders are handled")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	require.Equal(t, "handled 500 orders, handed 0 back, 0 are left for others\n", next())
	require.NoError(t, <-done)
}
