package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/broker/internal/domain"
)

// A worker: it claims the jobs of a pull consumer and does them, two at a time.
func ExampleConsumer_Consume() {
	url, stop := startExampleBroker()
	defer stop()
	c := client.New(url, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	// The producer's side.
	producer := client.Producer{Channel: "orders", ChannelToken: "channel-secret", ID: "shop", Token: "shop-secret"}
	_, err := c.Broadcast(ctx, producer, client.Message{ID: "order-1", Payload: []byte("two chairs")})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The worker's side.
	worker := c.Consumer("orders", "channel-secret", "warehouse", "warehouse-secret")
	err = worker.Consume(ctx, func(_ context.Context, j *client.Job) error {
		fmt.Printf("%s: %s\n", j.MessageID, j.Payload)
		cancel() // one is enough here; a worker goes on until it is stopped
		return nil
	}, client.Options{Concurrency: 2})
	fmt.Println("ended:", err)
	// Output:
	// order-1: two chairs
	// ended: <nil>
}

func startExampleBroker() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "broker-example")
	if err != nil {
		panic(err)
	}
	cfg := broker.DefaultConfig()
	cfg.HTTP.Listener = "127.0.0.1:0"
	cfg.NATS.StoreDir = dir
	cfg.Seed = broker.SeedData{
		Channels:  []broker.SeedItem{{ID: "orders", Name: "Orders", Token: "channel-secret"}},
		Producers: []broker.SeedItem{{ID: "shop", Name: "Shop", Token: "shop-secret"}},
		Consumers: []broker.SeedConsumer{{
			SeedItem: broker.SeedItem{ID: "warehouse", Name: "Warehouse", Token: "warehouse-secret"},
			Channel:  "orders", CallbackURL: "http://127.0.0.1/", Type: domain.Pull,
		}},
	}
	n, err := broker.Start(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	return n.URL(), func() {
		_ = n.Stop(context.Background())
		_ = os.RemoveAll(dir)
	}
}
