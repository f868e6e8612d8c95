package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
)

// TestREADME holds the first Go code of README.md against main.go.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found)
	code, _, _ := strings.Cut(rest, "```\n")
	file, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.Equal(t, string(file), code, "the first code of README.md is not examples/readme/main.go")
}

// buffer is a log that two goroutines use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestWork has it handle orders, of which one is no JSON, and end.
func TestWork(t *testing.T) {
	srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	defer srv.Stop()
	var out buffer
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- work(ctx, srv.URL()) }()
	has := func(text string) func() bool { return func() bool { return strings.Contains(out.String(), text) } }
	require.Eventually(t, has("waiting for orders"), time.Minute, time.Millisecond)

	nc, err := srv.Connect()
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	for _, body := range []string{`no order`, `{"id":1,"customer":"Ada"}`, `{"id":2,"customer":"Grace"}`} {
		_, err := js.Publish(t.Context(), "orders.new", []byte(body))
		require.NoError(t, err)
	}
	require.Eventually(t, has("order 1 goes to Ada"), time.Minute, time.Millisecond)
	require.Eventually(t, has("order 2 goes to Grace"), time.Minute, time.Millisecond)
	c, err := js.Consumer(t.Context(), "ORDERS", "worker")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err := c.Info(t.Context())
		return err == nil && info.AckFloor.Stream == 3
	}, time.Minute, time.Millisecond, "each is settled, the one that is none too")
	stop()
	require.NoError(t, <-done)
}
