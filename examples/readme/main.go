// Orders is a worker: it ships orders until it is interrupted.
package main

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

type order struct {
	ID       int
	Customer string
}

// ship handles one message. If it returns nil, the message is acknowledged. If it returns an error, the message is retried,
// at first after 1 s, and later after 72 s at most. A payload that is not an order in JSON is terminated, not retried.
func ship(_ context.Context, o order, _ *jetpull.Msg) error {
	log.Printf("order %d goes to %s", o.ID, o.Customer)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := work(ctx, nats.DefaultURL)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// work returns when ctx ends: it stops pulling, hands back unstarted messages, and waits for running handlers.
func work(ctx context.Context, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		return err
	}
	c, err := js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "worker"})
	if err != nil {
		return err
	}
	sub, err := jetpull.SubscribeConsumer(ctx, js, c, jetpull.Concurrency(8))
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	log.Print("waiting for orders; Ctrl-C ends")
	return sub.Consume(ctx, jetpull.HandleJSON(ship))
}
