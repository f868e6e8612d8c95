// Priority-overflow shows a priority group with the overflow policy. Workers in the near region pull as usual. Those in the far region get
// messages only while the backlog exceeds a threshold.
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

const stream, consumer, group, subject = "EXAMPLE_OVERFLOW", "worker", "regions", "example.overflow"

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
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: consumer, PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{group},
	}); err != nil {
		return err
	}

	near, err := jetpull.Subscribe(ctx, js, stream, consumer, jetpull.Group(group))
	if err != nil {
		return err
	}
	defer func() { _ = near.Close(context.WithoutCancel(ctx)) }()
	// The thresholds are options of the Subscription, so all pulls of the far region have them. Either one is enough.
	far, err := jetpull.Subscribe(ctx, js, stream, consumer, jetpull.Group(group),
		jetpull.MinPending(100), jetpull.MinAckPending(40), jetpull.MaxWait(300*time.Millisecond))
	if err != nil {
		return err
	}
	defer func() { _ = far.Close(context.WithoutCancel(ctx)) }()
	return scenes(ctx, js, near, far, out)
}

func scenes(ctx context.Context, js jetstream.JetStream, near, far *jetpull.Subscription, out io.Writer) error {
	for _, scene := range []struct {
		what    string
		publish int // messages to publish
		near    int // messages that the near region fetches and does not acknowledge
	}{
		{"50 pending", 50, 0},
		{"150 pending", 100, 0},
		{"few pending, but the near region is stuck", 0, 100},
	} {
		for range scene.publish {
			if _, err := js.Publish(ctx, subject, nil); err != nil {
				return err
			}
		}
		if scene.near > 0 {
			if _, err := near.Fetch(ctx, scene.near, jetpull.FillBatch()); err != nil {
				return err
			}
		}
		if err := help(ctx, far, scene.what, out); err != nil {
			return err
		}
	}
	return nil
}

func help(ctx context.Context, far *jetpull.Subscription, when string, out io.Writer) error {
	msgs, err := far.Fetch(ctx, 10)
	if errors.Is(err, jetpull.ErrTimeout) {
		_, err = fmt.Fprintf(out, "%s: the far region stays out\n", when)
		return err
	}
	if err != nil {
		return err
	}
	if err := jetpull.ConfirmAcks(ctx, msgs...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: the far region takes %d\n", when, len(msgs))
	return err
}
