package console_test

import (
	"log"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console"
)

// A program serves the console under a path of its own, on loopback.
func ExampleHandler() {
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
	c := console.Handler(console.Config{NATS: console.JetStream(js), Loopback: true})
	defer c.Close()
	http.Handle("/ops/", http.StripPrefix("/ops", c))
	log.Print(http.ListenAndServe("127.0.0.1:8222", nil))
}
