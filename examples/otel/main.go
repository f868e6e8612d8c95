// Otel processes orders in a worker that package otelpull observes, and prints the traces and metrics as JSON.
// In your program, replace the two stdout exporters. Keep the rest.
//
// Without -nats, it starts its own server. It exits when it is done, or on Ctrl-C.
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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/otelpull"
)

const (
	stream, consumer, subject = "EXAMPLE_OTEL", "worker", "example.otel"
	orders                    = 3
)

func main() {
	url := flag.String("nats", "", "server to use; empty starts one in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *url, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, out io.Writer) (err error) {
	t, err := setUpTelemetry(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.shutDown(context.WithoutCancel(ctx))) }()

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
		if err := publish(ctx, js, fmt.Append(nil, i+1)); err != nil {
			return err
		}
	}
	return work(ctx, js, t)
}

// telemetry holds the providers of spans and metrics.
type telemetry struct {
	tracers *sdktrace.TracerProvider
	meters  *sdkmetric.MeterProvider
}

// setUpTelemetry creates the program's global providers. otelpull uses them by default.
func setUpTelemetry(out io.Writer) (*telemetry, error) {
	spans, err := stdouttrace.New(stdouttrace.WithWriter(out))
	if err != nil {
		return nil, err
	}
	metrics, err := stdoutmetric.New(stdoutmetric.WithWriter(out))
	if err != nil {
		return nil, err
	}
	t := &telemetry{
		tracers: sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans)),
		meters:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics))),
	}
	otel.SetTracerProvider(t.tracers)
	otel.SetMeterProvider(t.meters)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return t, nil
}

// shutDown exports the remaining spans and metrics.
func (t *telemetry) shutDown(ctx context.Context) error {
	return errors.Join(t.tracers.Shutdown(ctx), t.meters.Shutdown(ctx))
}

// publish publishes an order with its trace context in the headers, so that the worker's span belongs to the same trace.
func publish(ctx context.Context, js jetstream.JetStream, order []byte) error {
	ctx, span := otel.Tracer("shop").Start(ctx, "order")
	defer span.End()
	m := nats.NewMsg(subject)
	m.Data = order
	otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(m.Header))
	_, err := js.PublishMsg(ctx, m)
	return err
}

func work(ctx context.Context, js jetstream.JetStream, t *telemetry) error {
	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	// A span and a duration for each message.
	handler, err := otelpull.Handler(func(ctx context.Context, _ *jetpull.Msg) error {
		_, span := otel.Tracer("shop").Start(ctx, "pack") // a child of the message's span in ctx
		defer span.End()
		return nil
	})
	if err != nil {
		return err
	}
	// Counters and gauges of the Subscription.
	metrics, err := otelpull.Observe(sub, []attribute.KeyValue{
		attribute.String("messaging.destination.name", stream),
		attribute.String("messaging.destination.subscription.name", consumer),
	})
	if err != nil {
		return err
	}
	err = sub.Consume(ctx, handler, jetpull.StopAfter(orders))
	// Export the last metrics before the Subscription is closed, because they are read from it.
	return errors.Join(err, t.meters.ForceFlush(context.WithoutCancel(ctx)), metrics.Unregister())
}
