// Package embedtest starts a server with a stream and a pull consumer for a test:
//
//	env := embedtest.Start(t, "orders.>")
//	sub, err := jetpull.Subscribe(ctx, env.JS, env.Stream, env.Consumer)
package embedtest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/natsembed"
)

// Env is the server of a test, with a connection to it.
type Env struct {
	// Server listens on no port. Its Connect returns further connections.
	Server *natsembed.Server
	Conn   *nats.Conn
	JS     jetstream.JetStream
	// Stream and Consumer are the names of the stream and of its durable consumer, which has the explicit ack policy.
	Stream, Consumer string
}

// setupMost bounds the start of the server and the creation of the stream and the consumer.
const setupMost = time.Minute

// Start starts a server that only this process can reach. It creates a stream with the given subjects, or test.> if there are
// none, and a durable pull consumer on it. If a step fails, the test fails. Everything is removed when the test ends.
func Start(tb testing.TB, subjects ...string) *Env {
	tb.Helper()
	return StartWith(tb, jetstream.StreamConfig{Subjects: subjects}, jetstream.ConsumerConfig{})
}

// StartWith is like [Start] with a configuration of the stream and of the consumer. An empty name of the stream is STREAM, and
// of the consumer is consumer. Empty subjects are test.>.
func StartWith(tb testing.TB, stream jetstream.StreamConfig, consumer jetstream.ConsumerConfig) *Env {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), setupMost)
	defer cancel()
	if len(stream.Subjects) == 0 {
		stream.Subjects = []string{"test.>"}
	}
	if stream.Name == "" {
		stream.Name = "STREAM"
	}
	if consumer.Name == "" && consumer.Durable == "" {
		consumer.Durable = "consumer"
	}
	env := &Env{Stream: stream.Name}
	must := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatalf("embedtest: %v", err)
		}
	}
	var err error
	env.Server, err = natsembed.Start(ctx, natsembed.Options{Dir: tb.TempDir(), Port: natsembed.NoPort})
	must(err)
	tb.Cleanup(env.Server.Stop)
	env.Conn, err = env.Server.Connect()
	must(err)
	tb.Cleanup(env.Conn.Close)
	env.JS, err = jetstream.New(env.Conn)
	must(err)
	_, err = env.JS.CreateStream(ctx, stream)
	must(err)
	made, err := env.JS.CreateConsumer(ctx, stream.Name, consumer)
	must(err)
	env.Consumer = made.CachedInfo().Name
	return env
}
