// Package otelpull brings OpenTelemetry to workers that use jetpull: spans that
// continue the trace of each message, and metrics read from a Subscription's
// counters. Names follow the semantic conventions for messaging; NATS has none of
// its own there, so messaging.system is "nats".
//
// It uses the OpenTelemetry API only. Without an SDK set up by the program it
// does nothing and costs next to nothing.
package otelpull

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull"
)

// scope names the instrumentation.
const scope = "github.com/jetpull/jetpull/otelpull"

// Option changes what [Handler] and [Observe] use.
type Option func(*config)

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
}

func newConfig(opts []Option) config {
	c := config{
		tracers:    otel.GetTracerProvider(),
		meters:     otel.GetMeterProvider(),
		propagator: otel.GetTextMapPropagator(),
	}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// WithTracerProvider sets where spans go; by default the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithMeterProvider sets where metrics go; by default the global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithPropagator sets how the trace is read from a message's headers; by
// default the global propagator, which reads nothing until the program sets one.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.propagator = p }
}

// Handler wraps h so that each message is handled in a span that continues the
// trace in the message's headers, and its duration is recorded in
// messaging.process.duration, in seconds. An error or panic of h marks the span.
// It fails with [jetpull.ErrInvalidOption] if h is nil, and if the meter cannot
// make the histogram.
func Handler(h jetpull.Handler, opts ...Option) (jetpull.Handler, error) {
	if h == nil {
		return nil, fmt.Errorf("otelpull: %w: handler: is nil", jetpull.ErrInvalidOption)
	}
	c := newConfig(opts)
	tracer := c.tracers.Tracer(scope)
	duration, err := c.meters.Meter(scope).Float64Histogram("messaging.process.duration",
		metric.WithUnit("s"), metric.WithDescription("Duration of processing operation."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10))
	if err != nil {
		return nil, fmt.Errorf("otelpull: histogram messaging.process.duration: %w", err)
	}
	return func(ctx context.Context, m *jetpull.Msg) (err error) {
		ctx = c.propagator.Extract(ctx, carrier(m.Headers()))
		ctx, span := tracer.Start(ctx, "process "+m.Subject(),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes(m)...))
		start := time.Now()
		panicked := true
		defer func() {
			attrs := recordAttributes(m)
			if panicked {
				err = errPanicked
			}
			if err != nil {
				span.RecordError(err)
				span.SetStatus(codes.Error, err.Error())
				attrs = append(attrs, attribute.String("error.type", fmt.Sprintf("%T", err)))
			}
			duration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(attrs...))
			span.End()
		}()
		err = h(ctx, m)
		panicked = false
		return err
	}, nil
}

var errPanicked = errors.New("the handler panicked")

// attributes describe a message on its span.
func attributes(m *jetpull.Msg) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.destination.name", m.Subject()),
		attribute.Int("messaging.message.body.size", len(m.Data())),
	}
	if id := m.Headers().Get(nats.MsgIdHdr); id != "" {
		attrs = append(attrs, attribute.String("messaging.message.id", id))
	}
	if meta, err := m.Metadata(); err == nil {
		attrs = append(attrs,
			attribute.String("messaging.consumer.group.name", meta.Consumer),
			attribute.String("messaging.destination.subscription.name", meta.Stream),
			attribute.Int64("nats.stream.sequence", int64(meta.Sequence.Stream)),
			attribute.Int64("nats.delivered", int64(meta.NumDelivered)))
	}
	return attrs
}

// recordAttributes are those of few values, fit for a metric: the stream, not
// the subject, stands for the destination.
func recordAttributes(m *jetpull.Msg) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.name", "process"),
	}
	if meta, err := m.Metadata(); err == nil {
		attrs = append(attrs,
			attribute.String("messaging.destination.name", meta.Stream),
			attribute.String("messaging.consumer.group.name", meta.Consumer))
	}
	return attrs
}

// carrier lets a propagator read NATS headers. Senders write the names of the
// W3C in lower case, and NATS keeps them as they are.
type carrier nats.Header

func (c carrier) Get(key string) string {
	if v := nats.Header(c).Get(key); v != "" {
		return v
	}
	return nats.Header(c).Get(canonical(key))
}

func (c carrier) Set(key, value string) { nats.Header(c).Set(key, value) }

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
