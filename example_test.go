package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// withServer runs an example on an embedded server that has the stream ORDERS
// with n messages in it, and the consumer cfg, by default the durable "worker".
func withServer(n int, example func(ctx context.Context, js jetstream.JetStream), cfgs ...jetstream.ConsumerConfig) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "jetpull-example-")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := natstest.StartServer(dir)
	check(err)
	defer server.Stop()
	nc, err := nats.Connect(server.URL())
	check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check(err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}})
	check(err)
	if len(cfgs) == 0 {
		cfgs = []jetstream.ConsumerConfig{{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy}}
	}
	for _, cfg := range cfgs {
		_, err = js.CreateConsumer(ctx, "ORDERS", cfg)
		check(err)
	}
	for i := range n {
		_, err = js.Publish(ctx, "orders.new", fmt.Appendf(nil, "order %d", i+1))
		check(err)
	}
	for _, cfg := range cfgs {
		heard(ctx, js, cfg.Durable, n)
	}
	example(ctx, js)
}

// heard waits until a consumer knows of n messages, which may be after their
// publisher does.
func heard(ctx context.Context, js jetstream.JetStream, consumer string, n int) {
	c, err := js.Consumer(ctx, "ORDERS", consumer)
	check(err)
	for c.CachedInfo().NumPending < uint64(n) {
		_, err = c.Info(ctx)
		check(err)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func ExampleSubscription_Next() {
	withServer(2, func(ctx context.Context, js jetstream.JetStream) {
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = sub.Close(ctx) }()
		for {
			m, err := sub.Next(ctx, jetpull.MaxWait(time.Second))
			if errors.Is(err, jetpull.ErrTimeout) {
				fmt.Println("no more orders")
				return
			}
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("%s: %s\n", m.Subject(), m.Data())
			if err := m.Ack(); err != nil {
				fmt.Println(err)
			}
		}
	})
	// Output:
	// orders.new: order 1
	// orders.new: order 2
	// no more orders
}

func ExampleSubscription_Fetch() {
	withServer(5, func(ctx context.Context, js jetstream.JetStream) {
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker", jetpull.MaxWait(time.Second))
		check(err)
		defer func() { _ = sub.Close(ctx) }()

		// What is there, up to 3, without waiting for more.
		ms, err := sub.Fetch(ctx, 3)
		check(err)
		for _, m := range ms {
			fmt.Printf("%s\n", m.Data())
			check(m.Ack())
		}
		ms, err = sub.Fetch(ctx, 3)
		check(err)
		fmt.Println(len(ms), "more")

		_, err = sub.Fetch(ctx, 3, jetpull.NoWait())
		fmt.Println(errors.Is(err, jetpull.ErrNoMessages))
	})
	// Output:
	// order 1
	// order 2
	// order 3
	// 2 more
	// true
}

func ExampleFillBatch() {
	withServer(2, func(ctx context.Context, js jetstream.JetStream) {
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker")
		check(err)
		defer func() { _ = sub.Close(ctx) }()
		ms, err := sub.Fetch(ctx, 10, jetpull.FillBatch(), jetpull.MaxWait(time.Second))
		fmt.Println(len(ms), err)
	})
	// Output: 2 <nil>
}

func ExampleMsg_AckNext() {
	withServer(3, func(ctx context.Context, js jetstream.JetStream) {
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker", jetpull.NoWait())
		check(err)
		defer func() { _ = sub.Close(ctx) }()
		m, err := sub.Next(ctx)
		for err == nil {
			fmt.Printf("%s\n", m.Data())
			// Acknowledges this one and pulls the next in one message.
			m, err = m.AckNext(ctx)
		}
		fmt.Println(errors.Is(err, jetpull.ErrNoMessages))
	})
	// Output:
	// order 1
	// order 2
	// order 3
	// true
}

func ExampleConfirmAcks() {
	withServer(100, func(ctx context.Context, js jetstream.JetStream) {
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker")
		check(err)
		defer func() { _ = sub.Close(ctx) }()
		ms, err := sub.Fetch(ctx, 100)
		check(err)
		// One round trip for all of them, instead of one each.
		if err := jetpull.ConfirmAcks(ctx, ms...); err != nil {
			fmt.Println(err) // names each message that is not confirmed
			return
		}
		info, err := sub.Info(ctx)
		check(err)
		fmt.Println(len(ms), "confirmed,", info.NumAckPending, "pending")
	})
	// Output: 100 confirmed, 0 pending
}

func ExampleSubscription_Consume() {
	withServer(3, func(ctx context.Context, js jetstream.JetStream) {
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker")
		check(err)
		defer func() { _ = sub.Close(ctx) }()
		ctx, stop := context.WithCancel(ctx)
		err = sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
			fmt.Printf("%s\n", m.Data())
			if m.Sequence() == 3 {
				stop()
			}
			return nil // acknowledges
		})
		fmt.Println(err)
	})
	// Output:
	// order 1
	// order 2
	// order 3
	// <nil>
}

func ExampleSubscription_Messages() {
	withServer(3, func(ctx context.Context, js jetstream.JetStream) {
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker")
		check(err)
		defer func() { _ = sub.Close(ctx) }()
		for m, err := range sub.Messages(ctx) {
			check(err)
			fmt.Printf("%s\n", m.Data())
			check(m.Ack())
			if m.Sequence() == 2 {
				break // what was read ahead goes back to the server
			}
		}
	})
	// Output:
	// order 1
	// order 2
}

func ExampleUnpin() {
	cfg := jetstream.ConsumerConfig{
		Durable: "pinned", AckPolicy: jetstream.AckExplicitPolicy,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"jobs"}, PinnedTTL: time.Minute,
	}
	withServer(2, func(ctx context.Context, js jetstream.JetStream) {
		lost := make(chan jetpull.PinEvent, 1)
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "pinned", jetpull.Group("jobs"),
			jetpull.OnUnpin(func(e jetpull.PinEvent) { lost <- e }))
		check(err)
		defer func() { _ = sub.Close(ctx) }()
		_, err = sub.Next(ctx)
		check(err)
		id, pinned := sub.Pin()
		fmt.Println("pinned:", pinned)

		check(jetpull.Unpin(ctx, js, "ORDERS", "pinned", "jobs"))
		// The client learns of it with its next pull. Here nobody else wants the
		// pin, so that pull gets the message, and a new pin with it.
		_, err = sub.Next(ctx)
		check(err)
		e := <-lost
		fmt.Println("lost the pin of", e.Group, e.ID == id)
		again, pinned := sub.Pin()
		fmt.Println("pinned again:", pinned, again != id)
	}, cfg)
	// Output:
	// pinned: true
	// lost the pin of jobs true
	// pinned again: true true
}

func ExampleStatusError() {
	cfg := jetstream.ConsumerConfig{Durable: "small", AckPolicy: jetstream.AckExplicitPolicy, MaxRequestBatch: 10}
	withServer(0, func(ctx context.Context, js jetstream.JetStream) {
		sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "small")
		check(err)
		defer func() { _ = sub.Close(ctx) }()
		_, err = sub.Fetch(ctx, 100)
		fmt.Println(errors.Is(err, jetpull.ErrLimitExceeded))
		if status, ok := errors.AsType[*jetpull.StatusError](err); ok {
			fmt.Println(status.Code, status.Description)
		}
	}, cfg)
	// Output:
	// true
	// 409 Exceeded MaxRequestBatch of 10
}

func ExampleSubscribe() {
	withServer(0, func(ctx context.Context, js jetstream.JetStream) {
		_, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker", jetpull.Group("jobs"))
		fmt.Println(err)
	})
	// Output: jetpull: invalid option: Group: "jobs": consumer "worker" has no priority groups; leave Group out, or create the consumer with PriorityGroups and PriorityPolicy
}
