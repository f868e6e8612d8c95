package natsembed_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/natsembed"
)

// A program runs its own server, with a store that is removed at the end.
func ExampleStart() {
	ctx := context.Background()
	srv, err := natsembed.Start(ctx, natsembed.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	defer srv.Stop()
	nc, err := srv.Connect()
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
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		log.Print(err)
		return
	}
	ack, err := js.Publish(ctx, "orders.new", []byte("two chairs"))
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(ack.Stream, ack.Sequence)
	// Output: ORDERS 1
}

// A program uses the user's server, or its own server if the user names none.
func ExampleConnect() {
	nc, stop, err := natsembed.Connect(context.Background(), "")
	if err != nil {
		log.Print(err)
		return
	}
	defer stop()
	fmt.Println(nc.IsConnected())
	// Output: true
}
