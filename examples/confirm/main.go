// Confirm acknowledges a batch of messages and waits until the server has confirmed all of them. It sends all acknowledgements
// before it waits.
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
	const stream, consumer, batch = "EXAMPLE_CONFIRM", "worker", 100
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"example.confirm"}}); err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer}); err != nil {
		return err
	}
	for i := range batch {
		if _, err := js.Publish(ctx, "example.confirm", fmt.Appendf(nil, "payment %d", i+1)); err != nil {
			return err
		}
	}

	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	msgs, err := sub.Fetch(ctx, batch, jetpull.FillBatch())
	if err != nil {
		return err
	}
	// Ack does not wait for the server. If ConfirmAcks returns nil, the server has all of the acknowledgements and does not redeliver these
	// messages.
	if err := jetpull.ConfirmAcks(ctx, msgs...); err != nil {
		return err
	}
	info, err := sub.Info(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%d confirmed; the server has %d unacknowledged, its ack floor is %d\n",
		len(msgs), info.NumAckPending, info.AckFloor.Stream); err != nil {
		return err
	}

	// The error wraps one error for each unconfirmed message, with its stream sequence.
	err = jetpull.ConfirmAcks(ctx, msgs[:2]...)
	if !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return errors.Join(errors.New("a second confirmation was not refused"), err)
	}
	_, err = fmt.Fprintf(out, "a second confirmation of the first two is refused, as it should be, with an error for each:\n%v\n", err)
	return err
}
