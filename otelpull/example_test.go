package otelpull_test

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/otelpull"
)

// A worker continues the trace of each message, and exports its counters. The program sets OpenTelemetry's SDK up as usual.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Print(err)
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Print(err)
		return
	}
	sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker")
	if err != nil {
		log.Print(err)
		return
	}
	defer sub.Close(context.Background())
	metrics, err := otelpull.Observe(sub, nil)
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = metrics.Unregister() }()
	traced, err := otelpull.Handler(func(_ context.Context, m *jetpull.Msg) error {
		log.Printf("order %s", m.Data()) // ctx has the span
		return nil
	})
	if err != nil {
		log.Print(err)
		return
	}
	if err := sub.Consume(ctx, traced); err != nil {
		log.Print(err)
	}
}
