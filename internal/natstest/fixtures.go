package natstest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// waitTimeout limits every wait for a condition on a real server.
const waitTimeout = 30 * time.Second

// Context returns a context that limits the time of one fixture's requests.
func Context(tb testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(tb.Context(), waitTimeout)
}

// JetStream returns nats.go's JetStream on nc.
func JetStream(tb testing.TB, nc *nats.Conn) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatalf("natstest: JetStream on the connection: %v", err)
	}
	return js
}

// Stream creates a stream with file storage and one replica. Its default subject is name.>.
func Stream(tb testing.TB, js jetstream.JetStream, name string, subjects ...string) jetstream.Stream {
	tb.Helper()
	return StreamWith(tb, js, jetstream.StreamConfig{Name: name, Subjects: subjects})
}

// StreamWith creates a stream with the given configuration. Its default subject is <name>.>, unless it is a mirror or has sources.
func StreamWith(tb testing.TB, js jetstream.JetStream, cfg jetstream.StreamConfig) jetstream.Stream {
	tb.Helper()
	if len(cfg.Subjects) == 0 && cfg.Mirror == nil && len(cfg.Sources) == 0 {
		cfg.Subjects = []string{cfg.Name + ".>"}
	}
	ctx, cancel := Context(tb)
	defer cancel()
	stream, err := js.CreateStream(ctx, cfg)
	if err != nil {
		tb.Fatalf("natstest: create stream %s: %v", cfg.Name, err)
	}
	return stream
}

// Consumer creates a consumer with the given configuration on a stream.
func Consumer(tb testing.TB, js jetstream.JetStream, stream string, cfg jetstream.ConsumerConfig) jetstream.Consumer {
	tb.Helper()
	ctx, cancel := Context(tb)
	defer cancel()
	c, err := js.CreateConsumer(ctx, stream, cfg)
	if err != nil {
		tb.Fatalf("natstest: create consumer %s on stream %s: %v", cfg.Durable+cfg.Name, stream, err)
	}
	return c
}

// publishWindow is the maximum number of unconfirmed messages of Publish. It is well below the number at which nats.go returns an error.
const publishWindow = 1000

// Publish stores n messages with the bodies "1" to "n" on subject and waits
// until the server has confirmed all of them.
func Publish(tb testing.TB, js jetstream.JetStream, subject string, n int) {
	tb.Helper()
	ctx, cancel := Context(tb)
	defer cancel()
	acks := make([]jetstream.PubAckFuture, n)
	for i := range n {
		if i >= publishWindow {
			confirm(ctx, tb, acks, i-publishWindow)
		}
		ack, err := js.PublishAsync(subject, strconv.AppendInt(nil, int64(i+1), 10))
		if err != nil {
			tb.Fatalf("natstest: publish message %d of %d on %s: %v", i+1, n, subject, err)
		}
		acks[i] = ack
	}
	for i := max(0, n-publishWindow); i < n; i++ {
		confirm(ctx, tb, acks, i)
	}
}

func confirm(ctx context.Context, tb testing.TB, acks []jetstream.PubAckFuture, i int) {
	tb.Helper()
	select {
	case <-acks[i].Ok():
	case err := <-acks[i].Err():
		tb.Fatalf("natstest: message %d of %d was not stored: %v", i+1, len(acks), err)
	case <-ctx.Done():
		tb.Fatalf("natstest: no confirmation for message %d of %d: %v", i+1, len(acks), context.Cause(ctx))
	}
}
