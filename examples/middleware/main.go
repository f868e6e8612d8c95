// Middleware wraps a handler with functions that all handlers of a program share: a log line for each message, and a rate limit.
//
// Without -nats, it starts its own server. It exits when all orders are handled, or on Ctrl-C.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer, subject = "EXAMPLE_MIDDLEWARE", "worker", "example.middleware"
	orders                    = 20
)

func main() {
	url := flag.String("nats", "", "server to use; empty starts one in this process")
	perSecond := flag.Float64("rate", 10, "orders a second")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *url, rate.NewLimiter(rate.Limit(*perSecond), 1), os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// logged logs each handled message, with its duration and error.
func logged(l *slog.Logger) jetpull.Middleware {
	return func(next jetpull.Handler) jetpull.Handler {
		return func(ctx context.Context, m *jetpull.Msg) error {
			start := time.Now()
			err := next(ctx, m)
			l.InfoContext(ctx, "handled", "sequence", m.Sequence(), "delivery", m.Delivered(), "took", time.Since(start).Round(time.Millisecond), "error", err)
			return err
		}
	}
}

// limited starts handlers at the limiter's rate, independent of the concurrency. While a message waits for its turn, jetpull keeps it in
// progress, so that the server does not redeliver it.
func limited(l *rate.Limiter) jetpull.Middleware {
	return func(next jetpull.Handler) jetpull.Handler {
		return func(ctx context.Context, m *jetpull.Msg) error {
			if err := l.Wait(ctx); err != nil {
				return jetpull.Retry(0, err) // Consume is ending: return the message to the server for another worker
			}
			return next(ctx, m)
		}
	}
}

func run(ctx context.Context, url string, limit *rate.Limiter, out io.Writer) error {
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
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer}); err != nil {
		return err
	}
	for i := range orders {
		if _, err := js.Publish(ctx, subject, fmt.Append(nil, i+1)); err != nil {
			return err
		}
	}

	// The first middleware is the outermost, so the logged duration includes the wait for the rate limit.
	sub, err := jetpull.Subscribe(ctx, js, stream, consumer,
		jetpull.Use(logged(slog.New(slog.NewTextHandler(out, nil))), limited(limit)))
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	return sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { return nil }, jetpull.Concurrency(4), jetpull.StopAfter(orders))
}
