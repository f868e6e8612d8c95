// Advisories prints how the pin of a priority group moves between two workers. It learns this only from the server's advisories.
//
// Without -nats, it starts its own server. It exits when the pin has been taken away three times, or on Ctrl-C.
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
	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer, group = "EXAMPLE_ADVISORIES", "worker", "primary"
	moves                   = 3
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
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"example.advisories"}}); err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: consumer, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{group},
	}); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all errgroup.Group
	for _, f := range []func(context.Context, jetstream.JetStream) error{work, work, unpin} {
		all.Go(func() error {
			defer cancel() // if one of them fails, watch ends
			return f(ctx, js)
		})
	}
	err = watch(ctx, js, out)
	cancel()
	return errors.Join(err, all.Wait())
}

// watch prints how the pin moves. It returns when the pin has been taken away moves times, or when ctx ends.
func watch(ctx context.Context, js jetstream.JetStream, out io.Writer) error {
	taken := 0
	for a, err := range jetpull.Advisories(ctx, js, stream, consumer) {
		if err != nil {
			return err
		}
		if a.Pinned {
			if _, err := fmt.Fprintf(out, "group %s: client %s is pinned\n", a.Group, a.ID); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(out, "group %s: the pin was taken: %s\n", a.Group, a.Reason); err != nil {
			return err
		}
		if taken++; taken == moves {
			return nil
		}
	}
	return nil // ctx has ended
}

// work is one of the two workers. Only the pinned worker gets orders.
func work(ctx context.Context, js jetstream.JetStream) error {
	sub, err := jetpull.Subscribe(context.WithoutCancel(ctx), js, stream, consumer, jetpull.Group(group))
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	return sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { return nil })
}

// unpin publishes an order and then unpins the pinned worker, over and over, until ctx ends.
func unpin(ctx context.Context, js jetstream.JetStream) error {
	c, err := js.Consumer(ctx, stream, consumer)
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for err == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if _, err = js.Publish(ctx, "example.advisories", []byte("order")); err != nil {
			break
		}
		var info *jetstream.ConsumerInfo
		if info, err = c.Info(ctx); err == nil && len(info.PriorityGroups) > 0 && info.PriorityGroups[0].PinnedClientID != "" {
			err = jetpull.Unpin(ctx, js, stream, consumer, group)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
