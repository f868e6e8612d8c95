// Advisories watches from outside how the pin of a priority group moves between two workers, by the advisories that
// the server sends.
//
// It needs nothing: without -nats it starts a server of its own. It ends by itself when the pin has been taken three
// times, and before that with Ctrl-C.
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
			defer cancel() // one that fails ends the watch
			return f(ctx, js)
		})
	}
	err = watch(ctx, js, out)
	cancel()
	return errors.Join(err, all.Wait())
}

// watch prints how the pin moves, until it has been taken often enough.
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

// work is one of the workers. Only the one that is pinned gets orders.
func work(ctx context.Context, js jetstream.JetStream) error {
	sub, err := jetpull.Subscribe(context.WithoutCancel(ctx), js, stream, consumer, jetpull.Group(group))
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	return sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { return nil })
}

// unpin publishes an order, and takes the pin from the worker that got it, again and again.
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
