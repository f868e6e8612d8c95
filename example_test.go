package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// The examples share these variables. The example of Subscription.Consume sets them.
var (
	js  jetstream.JetStream
	sub *jetpull.Subscription
)

// A service runs until SIGTERM or Ctrl-C. Then Consume stops pulling, hands back the messages that it has read ahead,
// and waits for the running handlers.
func ExampleSubscription_Consume() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	defer sub.Close(context.Background()) // ctx has ended by then

	err = sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		if len(m.Data()) == 0 {
			return jetpull.Terminate("empty order", nil) // never delivered again
		}
		log.Printf("order %s", m.Data())
		return nil // acknowledged; after an error it is retried
	}, jetpull.Concurrency(8), jetpull.DrainTimeout(20*time.Second))
	if errors.Is(err, jetpull.ErrDrainTimeout) {
		log.Printf("some handlers had to be cancelled; their messages are redelivered: %v", err)
	} else if err != nil {
		log.Print(err)
	}
}

// The loop reads ahead. When it ends, also by break, the messages that it has not yielded are handed back to the server.
func ExampleSubscription_Messages() {
	ctx := context.Background()
	for m, err := range sub.Messages(ctx) {
		if err != nil {
			log.Print(err) // the loop ends after an error
			continue
		}
		if string(m.Data()) == "closing time" {
			_ = m.Term()
			break
		}
		log.Printf("order %s", m.Data())
		if err := m.Ack(); err != nil {
			log.Print(err)
		}
	}
}

// A batch job fetches up to 100 messages at a time, until none are left.
func ExampleSubscription_Fetch() {
	ctx := context.Background()
	for {
		msgs, err := sub.Fetch(ctx, 100, jetpull.NoWait())
		if errors.Is(err, jetpull.ErrNoMessages) {
			return
		}
		if err != nil {
			log.Print(err)
			return
		}
		for _, m := range msgs {
			log.Printf("order %s", m.Data())
			if err := m.Ack(); err != nil {
				log.Print(err)
			}
		}
	}
}

// The handler gets each message as a value. A payload that cannot be decoded is not retried: the message becomes a
// dead letter, if DeadLetter is set, and is terminated.
func ExampleHandleJSON() {
	type order struct {
		ID       int
		Customer string
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := sub.Consume(ctx, jetpull.HandleJSON(func(_ context.Context, o order, m *jetpull.Msg) error {
		log.Printf("order %d of %s, delivery %d", o.ID, o.Customer, m.Delivered())
		return nil
	}))
	if err != nil {
		log.Print(err)
	}
}

// A Middleware that logs is an option of Subscribe, so it applies to each Consume of the Subscription.
func ExampleUse() {
	logged := func(next jetpull.Handler) jetpull.Handler {
		return func(ctx context.Context, m *jetpull.Msg) error {
			start := time.Now()
			err := next(ctx, m)
			slog.InfoContext(ctx, "handled", "subject", m.Subject(), "sequence", m.Sequence(), "took", time.Since(start), "error", err)
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker", jetpull.Use(logged))
	if err != nil {
		log.Print(err)
		return
	}
	defer sub.Close(context.Background())

	err = sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { return nil })
	if err != nil {
		log.Print(err)
	}
}

// The handler passes each message to another goroutine and returns. That goroutine acknowledges it.
func ExampleManualAck() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	queue := make(chan *jetpull.Msg)
	go func() {
		for m := range queue {
			log.Printf("order %s", m.Data())
			if err := m.Ack(); err != nil {
				log.Print(err)
			}
		}
	}()
	// Consume waits until all messages that were passed on are settled, for DrainTimeout at most.
	err := sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		select {
		case queue <- m:
			return nil
		case <-ctx.Done():
			return ctx.Err() // not passed on, so the message is retried
		}
	}, jetpull.ManualAck())
	close(queue)
	if err != nil {
		log.Print(err)
	}
}

// A message that has failed five times is copied to a subject that the stream DEAD stores, and is terminated. Each
// failed attempt is an Event.
func ExampleDeadLetter() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}}); err != nil {
		log.Print(err)
		return
	}
	err := sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		return fmt.Errorf("order %s: out of stock", m.Data())
	},
		jetpull.MaxAttempts(5),
		jetpull.RetryDelays(time.Second, 10*time.Second, time.Minute),
		jetpull.DeadLetter("dead.orders"),
		jetpull.OnEvent(func(e jetpull.Event) {
			switch e.Outcome {
			case jetpull.Retried:
				log.Printf("sequence %d: attempt %d, again in %v: %v", e.Msg.Sequence(), e.Attempt, e.After, e.Err)
			case jetpull.DeadLettered:
				log.Printf("sequence %d: given up after %d attempts, see %s: %v", e.Msg.Sequence(), e.Attempt, e.DeadLetter, e.Err)
			default:
				log.Printf("sequence %d: %s: %v", e.Msg.Sequence(), e.Outcome, e.Err)
			}
		}))
	if err != nil {
		log.Print(err)
	}
}

// A batch is acknowledged, and the program continues when the server has confirmed each message.
func ExampleConfirmAcks() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	msgs, err := sub.Fetch(ctx, 100)
	if err != nil {
		log.Print(err)
		return
	}
	if err := jetpull.ConfirmAcks(ctx, msgs...); err != nil {
		log.Printf("not all are confirmed, and those may be redelivered: %v", err) // one line for each
	}
}

// A loop over the server's advisories shows how pins move between clients, until it is interrupted.
func ExampleAdvisories() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for a, err := range jetpull.Advisories(ctx, js, "ORDERS", "worker") {
		switch {
		case err != nil:
			log.Print(err)
		case a.Pinned:
			log.Printf("group %s: client %s is pinned", a.Group, a.ID)
		default:
			log.Printf("group %s: nobody is pinned (%s)", a.Group, a.Reason)
		}
	}
}

// A client of a pinned group works alone. A second process with the same program stands by, and takes over when the
// first one stops.
func ExampleGroup() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
		Durable: "billing", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"main"}, PinnedTTL: 10 * time.Second,
	})
	if err != nil {
		log.Print(err)
		return
	}
	sub, err := jetpull.SubscribeConsumer(ctx, js, c, jetpull.Group("main"),
		jetpull.OnPin(func(e jetpull.PinEvent) { log.Printf("pinned in group %s", e.Group) }),
		jetpull.OnUnpin(func(e jetpull.PinEvent) { log.Printf("no longer pinned in group %s", e.Group) }))
	if err != nil {
		log.Print(err)
		return
	}
	defer sub.Close(context.Background())
	if err := sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		log.Printf("order %s", m.Data())
		return nil
	}); err != nil {
		log.Print(err)
	}
}

// A loop acknowledges a message and gets the next one.
func ExampleMsg_AckNext() {
	ctx := context.Background()
	m, err := sub.Next(ctx)
	for err == nil {
		log.Printf("order %s", m.Data())
		m, err = m.AckNext(ctx)
	}
	if !errors.Is(err, jetpull.ErrTimeout) { // no message arrived for 5 s
		log.Print(err)
	}
}

// A handler decides when its message is retried, or that it is terminated.
func ExampleRetry() {
	handler := func(ctx context.Context, m *jetpull.Msg) error {
		err := ctx.Err() // the work
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return jetpull.Retry(time.Minute, err) // in a minute
		case len(m.Data()) == 0:
			return jetpull.Terminate("empty order", err) // never
		default:
			return err // nil: acknowledged; otherwise after RetryDelays, the consumer's BackOff, or 1 s doubling to 1 min
		}
	}
	_ = handler
}
