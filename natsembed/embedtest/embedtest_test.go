package embedtest_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/natsembed/embedtest"
)

func TestStart(t *testing.T) {
	for name, env := range map[string]*embedtest.Env{
		"defaults": embedtest.Start(t),
		"subjects": embedtest.Start(t, "test.orders"),
		"configured": embedtest.StartWith(t, jetstream.StreamConfig{Name: "ORDERS", Storage: jetstream.MemoryStorage},
			jetstream.ConsumerConfig{Name: "worker", MaxDeliver: 3}),
	} {
		if _, err := env.JS.Publish(t.Context(), "test.orders", []byte("1")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c, err := env.JS.Consumer(t.Context(), env.Stream, env.Consumer)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m, err := c.Next()
		if err != nil || string(m.Data()) != "1" {
			t.Fatalf("%s: message %v: %v", name, m, err)
		}
	}
}
