package partition_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
)

// Each process that runs this program is a member. The orders of a customer are handled in order, one after the other, whichever members handle
// them. Members may join, leave and crash at any time.
func ExampleSet_Consume() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
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
	transform := partition.Transform(64, "orders.*") // orders.42 is stored as orders.17.42
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*"},
		SubjectTransform: &transform,
	}); err != nil {
		log.Print(err)
		return
	}
	set, err := partition.Open(ctx, js, "ORDERS", partition.Config{Name: "billing", Partitions: 64, Subject: "orders.{partition}.*"})
	if err != nil {
		log.Print(err)
		return
	}

	err = set.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		log.Printf("%s: %s", m.Subject(), m.Data())
		return nil
	}, partition.With(jetpull.Concurrency(8)), partition.OnAssign(func(p int, why string) { log.Printf("partition %d is ours: %s", p, why) }))
	if err != nil {
		log.Print(err)
	}
}

// A publisher that adds the token itself uses the hash of the server.
func ExampleOf() {
	fmt.Printf("orders.%d.ada\n", partition.Of("ada", 64))
	fmt.Println(partition.Transform(64, "orders.*").Destination)
	// Output:
	// orders.59.ada
	// orders.{{partition(64,1)}}.{{wildcard(1)}}
}
