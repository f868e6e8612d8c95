package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

func TestWorkerHandlesAllAndStops(t *testing.T) {
	srv := natstest.RunServer(t)
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	require.NoError(t, err)
	consumer, err := js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "worker"})
	require.NoError(t, err)
	const orders = 100
	for i := range orders {
		_, err := js.Publish(t.Context(), "orders", fmt.Appendf(nil, `{"id":%d,"item":"lamp"}`, i))
		require.NoError(t, err)
	}
	_, err = js.Publish(t.Context(), "orders", []byte("no order"))
	require.NoError(t, err)
	var shipped bytes.Buffer
	log.SetOutput(&shipped)
	defer log.SetOutput(os.Stderr)

	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- run(ctx, srv.URL()) }()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		info, err := consumer.Info(t.Context())
		require.NoError(c, err)
		require.EqualValues(c, orders+1, info.AckFloor.Stream)
	}, 20*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-stopped)
	require.Equal(t, orders, strings.Count(shipped.String(), "lamp shipped\n"))
}

func TestWorkerWithoutServer(t *testing.T) {
	require.Error(t, run(t.Context(), "nats://127.0.0.1:1"))
}

// TestReadmeShowsThisWorker holds the code in the README against the code that
// the other tests run.
func TestReadmeShowsThisWorker(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, block, "the README has a worker")
	require.Contains(t, string(source), strings.TrimSpace(string(block[1])))
}
