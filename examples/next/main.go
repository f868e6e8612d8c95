// Next pulls one message at a time: in a plain loop, in a loop that acknowledges and pulls with one request, and in many goroutines that
// share pulls.
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
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer, subject = "EXAMPLE_NEXT", "worker", "example.next"

	loop, chain, shared = 3, 3, 1000
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
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}}); err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer, MaxAckPending: 2 * shared}); err != nil {
		return err
	}
	for i := range loop + chain + shared {
		if _, err := js.Publish(ctx, subject, fmt.Appendf(nil, "order %d", i+1)); err != nil {
			return err
		}
	}

	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	for _, step := range []func(context.Context, *jetpull.Subscription, io.Writer) error{plain, acknowledgeAndPull, together} {
		if err := step(ctx, sub, out); err != nil {
			return err
		}
	}
	return nil
}

// plain is the simplest loop: Next, handle, Ack.
func plain(ctx context.Context, sub *jetpull.Subscription, out io.Writer) error {
	for range loop {
		m, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "next: %s\n", m.Data()); err != nil {
			return err
		}
		if err := m.Ack(); err != nil {
			return err
		}
	}
	return nil
}

// acknowledgeAndPull sends half as many messages to the server, because each both acknowledges a message and pulls the next.
func acknowledgeAndPull(ctx context.Context, sub *jetpull.Subscription, out io.Writer) error {
	m, err := sub.Next(ctx)
	if err != nil {
		return err
	}
	for left := chain; ; left-- {
		if _, err := fmt.Fprintf(out, "ack and next: %s\n", m.Data()); err != nil {
			return err
		}
		if left == 1 {
			return m.Ack()
		}
		if m, err = m.AckNext(ctx); err != nil {
			return err
		}
	}
}

// together empties the stream with eight goroutines that call Next. Goroutines that call it while a pull is in flight share the next
// pull.
func together(ctx context.Context, sub *jetpull.Subscription, out io.Writer) error {
	before := sub.Stats().Pulls
	var handled atomic.Int64
	var workers sync.WaitGroup
	failed := make(chan error, 8)
	for range cap(failed) {
		workers.Go(func() {
			for {
				m, err := sub.Next(ctx, jetpull.NoWait())
				if errors.Is(err, jetpull.ErrNoMessages) {
					return
				}
				if err == nil {
					err = m.DoubleAck(ctx)
				}
				if err != nil {
					failed <- err
					return
				}
				handled.Add(1)
			}
		})
	}
	workers.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	pulls := sub.Stats().Pulls - before
	_, err := fmt.Fprintf(out, "8 goroutines: %d messages, fewer pulls than messages: %t\n",
		handled.Load(), pulls < uint64(handled.Load()))
	return err
}
