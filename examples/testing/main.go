// Testing shows how to test a handler; see main_test.go. One test needs no server, and the other starts one.
//
// The program itself handles three orders. Without -nats, it starts its own server. It exits when it is done, or on Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

const stream, consumer, subject = "EXAMPLE_TESTING", "worker", "example.testing"

func main() {
	url := flag.String("nats", "", "server to use; empty starts one in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *url, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

type order struct {
	ID       int
	Quantity int
}

var errTooFew = errors.New("too few in stock")

// warehouse is the state that the handler changes.
type warehouse struct {
	mu    sync.Mutex
	stock int
}

// handler takes orders off the stock.
func (w *warehouse) handler() jetpull.Handler { return jetpull.HandleJSON(w.take) }

func (w *warehouse) take(_ context.Context, o order, _ *jetpull.Msg) error {
	if o.Quantity < 1 {
		return jetpull.Terminate(fmt.Sprintf("order %d is for nothing", o.ID), nil)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Quantity > w.stock {
		return jetpull.Retry(time.Hour, errTooFew)
	}
	w.stock -= o.Quantity
	return nil
}

func run(ctx context.Context, url string, out io.Writer) error {
	nc, stop, err := natsembed.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer stop()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}}); err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer}); err != nil {
		return err
	}
	for i := range 3 {
		if _, err := js.Publish(ctx, subject, fmt.Appendf(nil, `{"id":%d,"quantity":2}`, i+1)); err != nil {
			return err
		}
	}
	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	w := &warehouse{stock: 10}
	if err := sub.Consume(ctx, w.handler(), jetpull.StopAfter(3)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d of 10 are left\n", w.stock)
	return err
}
