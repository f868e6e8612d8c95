package deadletters_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/deadletters"
)

// A process keeps the advisories of all streams in stream DEAD, and stores dead letters there, until it is interrupted.
func ExampleCapture() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
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
	if _, err := deadletters.Keep(ctx, js, "DEAD"); err != nil {
		log.Print(err)
		return
	}
	if err := deadletters.Capture(ctx, js, deadletters.Config{Stream: "DEAD", Subject: "dead.orders"}); err != nil {
		log.Print(err)
	}
}
