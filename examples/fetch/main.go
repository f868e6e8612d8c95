// Fetch fetches messages in three ways: up to n messages as soon as there is one, without waiting, and exactly n messages.
//
// Without -nats, it starts its own server. It exits by itself.
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
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

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
	const stream, consumer = "EXAMPLE_FETCH", "worker"
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"example.fetch"}}); err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer}); err != nil {
		return err
	}
	publish := func(from, to int) error {
		for i := from; i <= to; i++ {
			if _, err := js.Publish(ctx, "example.fetch", fmt.Appendf(nil, "order %d", i)); err != nil {
				return err
			}
		}
		return nil
	}

	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()

	// Fetch waits only for the first message. There are seven, so a Fetch of ten returns seven at once.
	if err := publish(1, 7); err != nil {
		return err
	}
	if err := fetch(ctx, sub, out, "up to 10", 10); err != nil {
		return err
	}

	// The stream is empty now. With NoWait, Fetch returns ErrNoMessages instead of waiting.
	_, err = sub.Fetch(ctx, 10, jetpull.NoWait())
	if !errors.Is(err, jetpull.ErrNoMessages) {
		return errors.Join(errors.New("an empty stream was to say that it is empty"), err)
	}
	if _, err := fmt.Fprintln(out, "no wait: no messages"); err != nil {
		return err
	}

	// FillBatch waits until all five messages have arrived, or until MaxWait has passed.
	published := make(chan error, 1)
	go func() { published <- publish(8, 12) }()
	if err := fetch(ctx, sub, out, "all of 5", 5, jetpull.FillBatch(), jetpull.MaxWait(10*time.Second)); err != nil {
		return err
	}
	return <-published
}

func fetch(ctx context.Context, sub *jetpull.Subscription, out io.Writer, what string, n int, opts ...jetpull.FetchOption) error {
	msgs, err := sub.Fetch(ctx, n, opts...)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if err := m.Ack(); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%s: %d messages, %q to %q\n", what, len(msgs), msgs[0].Data(), msgs[len(msgs)-1].Data())
	return err
}
