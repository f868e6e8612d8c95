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

// TestTutorial compares the program of docs/tutorial-worker.md with main.go, and requires that the program contains the code of README.md.
func TestTutorial(t *testing.T) {
	file, err := os.ReadFile("main.go")
	require.NoError(t, err)
	program := codeOf(t, "../../docs/tutorial-worker.md")
	require.Len(t, program, 1)
	require.Equal(t, string(file), program[0], "the code of docs/tutorial-worker.md is not examples/readme/main.go")
	parts := codeOf(t, "../../README.md")
	require.NotEmpty(t, parts)
	for _, part := range parts {
		require.Contains(t, string(file), part, "code of README.md is not in examples/readme/main.go")
	}
}

// codeOf returns the Go code of a page, block by block.
func codeOf(t *testing.T, path string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, rest := range strings.Split(string(page), "```go\n")[1:] {
		code, _, _ := strings.Cut(rest, "```\n")
		blocks = append(blocks, code)
	}
	return blocks
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

// TestWork lets work handle orders, one of which is not JSON, and then stops it.
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
