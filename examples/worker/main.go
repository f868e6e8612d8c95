// Worker is a service that processes the messages of a consumer. On SIGTERM or Ctrl-C, it stops pulling, returns unstarted messages to the
// server, and lets running handlers finish.
//
// Without -nats, it starts its own server. It publishes orders, reports when they are handled, and waits for more until Ctrl-C or SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer = "EXAMPLE_WORKER", "worker"
	customers        = 10
	orders           = 500
	workers          = 4
)

func main() {
	url := flag.String("nats", "", "server to use; empty starts one in this process")
	flag.Parse()
	if err := run(*url, os.Stdout, handle); err != nil {
		log.Fatal(err)
	}
}

// run is the service. SIGTERM ends ctx. Consume then waits for running handlers and returns, and the deferred calls close the rest.
func run(url string, out io.Writer, handle jetpull.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	nc, disconnect, err := natsembed.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer disconnect()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	removeBacklog, err := backlog(ctx, js)
	if err != nil {
		return err
	}
	defer removeBacklog()

	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()

	_, _ = fmt.Fprintf(out, "working off %d orders; Ctrl-C or SIGTERM ends\n", orders)
	var handled atomic.Int64
	err = sub.Consume(ctx,
		func(ctx context.Context, m *jetpull.Msg) error {
			err := handle(ctx, m)
			if err == nil && handled.Add(1) == orders {
				_, _ = fmt.Fprintln(out, "idle: all orders are handled, and it waits for more; Ctrl-C or SIGTERM ends")
			}
			return err
		},
		jetpull.Concurrency(workers),
		jetpull.OrderedBy((*jetpull.Msg).Subject), // one order per customer at a time
		jetpull.RetryDelays(time.Second, 10*time.Second, time.Minute),
		// Must be shorter than the platform's wait between SIGTERM and SIGKILL.
		jetpull.DrainTimeout(20*time.Second),
		jetpull.Logger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	)
	if errors.Is(err, jetpull.ErrDrainTimeout) {
		// Some handlers were cancelled. Their messages are redelivered.
		_, _ = fmt.Fprintln(out, err)
		err = nil
	}
	if err != nil {
		return err
	}
	n := int(handled.Load())
	_, err = fmt.Fprintf(out, "handled %d orders, handed %d back, %d are left for others\n", n, sub.Stats().HandedBack, orders-n)
	return err
}

// handle handles one order.
func handle(ctx context.Context, m *jetpull.Msg) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("order %s: %w", m.Data(), ctx.Err())
	}
}

// backlog creates the stream and the consumer, and publishes the orders.
func backlog(ctx context.Context, js jetstream.JetStream) (remove func(), err error) {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"example.worker.*"}}); err != nil {
		return nil, err
	}
	remove = func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer}); err != nil {
		remove()
		return nil, err
	}
	for i := range orders {
		if _, err := js.Publish(ctx, fmt.Sprintf("example.worker.customer-%d", i%customers), fmt.Append(nil, i+1)); err != nil {
			remove()
			return nil, err
		}
	}
	return remove, nil
}
