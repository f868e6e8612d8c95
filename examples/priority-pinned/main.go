// Priority-pinned shows a priority group with the pinned_client policy. One of two workers handles all orders, in sequence. The other is
// the stand-by, and takes over after an unpin.
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

const stream, consumer, group, subject = "EXAMPLE_PINNED", "worker", "primary", "example.pinned"

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
		Durable: consumer, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{group},
	}); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	handled := make(chan handledBy)
	pinned, unpinned := make(chan string, 8), make(chan string, 8)
	stopped := make(chan error, 2)
	for _, name := range []string{"Ada", "Grace"} {
		sub, err := jetpull.Subscribe(ctx, js, stream, consumer, jetpull.Group(group),
			jetpull.OnPin(func(jetpull.PinEvent) { pinned <- name }),
			jetpull.OnUnpin(func(jetpull.PinEvent) { unpinned <- name }))
		if err != nil {
			cancel()
			return err
		}
		go func() {
			defer cancel() // if a worker fails, do not wait for its orders
			stopped <- work(ctx, sub, name, handled)
		}()
	}

	err = takeOver(ctx, js, handled, pinned, unpinned, out)
	cancel()
	return errors.Join(err, <-stopped, <-stopped)
}

// takeOver publishes ten orders, unpins the worker that handled them, and reports which worker handles the next ten.
func takeOver(ctx context.Context, js jetstream.JetStream, handled <-chan handledBy, pinned, unpinned <-chan string, out io.Writer) error {
	first, err := tenOrders(ctx, js, handled)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s is pinned and did %v\n", next(ctx, pinned), first.orders); err != nil {
		return err
	}
	if err := bothWait(ctx, js); err != nil {
		return err
	}
	if err := jetpull.Unpin(ctx, js, stream, consumer, group); err != nil {
		return err
	}
	second, err := tenOrders(ctx, js, handled)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "unpin: %s has lost the pin\n%s is pinned and did %v\nthe stand-by took over: %t\n",
		next(ctx, unpinned), next(ctx, pinned), second.orders, first.worker != second.worker)
	return err
}

// bothWait waits until both workers have a pending pull. Otherwise, the stand-by might pull too late to get the pin.
func bothWait(ctx context.Context, js jetstream.JetStream) error {
	c, err := js.Consumer(ctx, stream, consumer)
	for err == nil && c.CachedInfo().NumWaiting < 2 {
		select {
		case <-time.After(10 * time.Millisecond):
			_, err = c.Info(ctx)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// next returns the worker of the next event, or "nobody" when ctx ends. Events arrive shortly after the changes that they report.
func next(ctx context.Context, events <-chan string) string {
	select {
	case name := <-events:
		return name
	case <-ctx.Done():
		return "nobody"
	}
}

type handledBy struct {
	worker string
	order  string
}

type shift struct {
	worker string
	orders []string
}

// tenOrders publishes ten orders and waits until they are handled. It fails unless one worker handles all of them.
func tenOrders(ctx context.Context, js jetstream.JetStream, handled <-chan handledBy) (shift, error) {
	for i := range 10 {
		if _, err := js.Publish(ctx, subject, fmt.Append(nil, i+1)); err != nil {
			return shift{}, err
		}
	}
	var s shift
	for range 10 {
		select {
		case h := <-handled:
			if s.worker != "" && s.worker != h.worker {
				return s, fmt.Errorf("order %s was done by %s, the one before by %s", h.order, h.worker, s.worker)
			}
			s.worker = h.worker
			s.orders = append(s.orders, h.order)
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
	return s, nil
}

// work handles one order after another. A worker that is not pinned waits in Next and needs no extra code.
func work(ctx context.Context, sub *jetpull.Subscription, name string, handled chan<- handledBy) error {
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	for ctx.Err() == nil {
		m, err := sub.Next(ctx)
		if errors.Is(err, jetpull.ErrTimeout) {
			continue // no order yet
		}
		if err == nil {
			err = m.DoubleAck(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if m != nil {
			select {
			case handled <- handledBy{name, string(m.Data())}:
			case <-ctx.Done():
			}
		}
	}
	return nil
}
