// Demo-partition handles the orders of each customer in sequence across three processes, and kills one of them.
//
// It starts a server and three member processes, and exits by itself. It prints which member gets which partition, and when a member is
// killed.
//
// You can also run it in three terminals. Kill a member, and start it again:
//
//	go run ./examples/demo-partition -serve
//	go run ./examples/demo-partition -member ada
//	go run ./examples/demo-partition -member grace
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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/partition"
)

const (
	stream     = "ORDERS"
	partitions = 8
	customers  = 40
	port       = 4333
)

var set = partition.Config{Name: "billing", Partitions: partitions, Subject: "orders.{partition}.*", TTL: 2 * time.Second}

func main() {
	serving := flag.Bool("serve", false, "start a server, and publish orders until interrupted")
	member := flag.String("member", "", "be the member with this `NAME`")
	url := flag.String("nats", fmt.Sprintf("nats://127.0.0.1:%d", port), "server of a member")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	switch {
	case *member != "":
		err = work(ctx, *url, *member, os.Stdout)
	case *serving:
		err = serve(ctx, os.Stdout)
	default:
		err = demo(ctx, os.Stdout)
	}
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// work runs a member, which handles the orders of its partitions until ctx ends.
func work(ctx context.Context, url, name string, out io.Writer) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s, err := partition.Open(ctx, js, stream, set)
	if err != nil {
		return err
	}
	say := log.New(out, name+": ", 0).Printf
	return s.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		say("order %s of %s", m.Data(), m.Subject())
		return nil
	}, partition.Member(name), partition.With(jetpull.Concurrency(4)),
		partition.OnAssign(func(n int, why string) { say("+ partition %d: %s", n, why) }),
		partition.OnRevoke(func(n int, why string) { say("- partition %d: %s", n, why) }))
}

// start starts a server and creates the stream. The stream adds the partition to the subject of each order.
func start(ctx context.Context, port int) (*natsembed.Server, jetstream.JetStream, func(), error) {
	srv, err := natsembed.Start(ctx, natsembed.Options{Port: port})
	if err != nil {
		return nil, nil, nil, err
	}
	nc, err := srv.Connect()
	if err != nil {
		srv.Stop()
		return nil, nil, nil, err
	}
	stop := func() {
		nc.Close()
		srv.Stop()
	}
	js, err := jetstream.New(nc)
	if err == nil {
		transform := partition.Transform(partitions, "orders.*")
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"orders.*"}, SubjectTransform: &transform})
	}
	if err != nil {
		stop()
		return nil, nil, nil, err
	}
	return srv, js, stop, nil
}

// publish publishes the next order of every customer, with a pause after each round. It ends after so many orders per customer, or when ctx ends.
func publish(ctx context.Context, js jetstream.JetStream, orders int, pause time.Duration) error {
	for n := range orders {
		for c := range customers {
			if _, err := js.Publish(ctx, fmt.Sprintf("orders.customer-%d", c), fmt.Append(nil, n)); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func serve(ctx context.Context, out io.Writer) error {
	srv, js, stop, err := start(ctx, port)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := fmt.Fprintf(out, "server at %s; start members, and see them with: jetpull partition watch billing --nats %s\n", srv.URL(),
		srv.URL()); err != nil {
		return err
	}
	if err := publish(ctx, js, 1_000_000, time.Second); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
