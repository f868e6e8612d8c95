// Worker is the worker of the README: it handles orders eight at a time until it
// is told to stop, and loses none of them.
//
// It wants a stream ORDERS with a pull consumer named worker on the server at
// NATS_URL, or on nats://127.0.0.1:4222.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return work(ctx, js)
}

func work(ctx context.Context, js jetstream.JetStream) error {
	sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker")
	if err != nil {
		return err
	}
	defer sub.Close(context.Background())
	return sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		var o Order
		if err := json.Unmarshal(m.Data(), &o); err != nil {
			return jetpull.Terminate("not an order", err) // never delivered again
		}
		return ship(ctx, o) // nil: acknowledged; an error: delivered again
	}, jetpull.Concurrency(8))
}

// Order is what the messages carry.
type Order struct {
	ID   int    `json:"id"`
	Item string `json:"item"`
}

// ship does the work. It is given up with ctx, which ends only when the worker
// was told to stop and the time to finish has passed.
func ship(_ context.Context, o Order) error {
	log.Printf("order %d: %s shipped", o.ID, o.Item)
	return nil
}
