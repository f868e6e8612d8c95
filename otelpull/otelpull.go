// Package otelpull adds OpenTelemetry to workers that use jetpull: spans that continue the trace of each message, and metrics
// from the counters of a Subscription.
//
// Names follow the semantic conventions for messaging, version 1.43. These have no value for NATS, so messaging.system is
// "nats". On spans and metrics, messaging.destination.name is the stream, and messaging.destination.subscription.name and
// messaging.consumer.group.name are the consumer. There can be as many subjects as messages, so only spans have the
// subject, as nats.subject. server.address is not set, because messages do not contain it.
//
// The package uses only the OpenTelemetry API. Without an SDK in the program, it does nothing and costs very little.
package otelpull

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull"
)

const scope = "github.com/jetpull/jetpull/otelpull"

// Option configures [Handler], [Middleware], [Observe] and [ObserveSet]. Each ignores options that it does not use.
type Option func(*config)

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	backlog    time.Duration
}

func newConfig(opts []Option) (config, error) {
	c := config{
		tracers:    otel.GetTracerProvider(),
		meters:     otel.GetMeterProvider(),
		propagator: otel.GetTextMapPropagator(),
	}
	for i, o := range opts {
		if o == nil {
			return c, isNil(fmt.Sprintf("opts[%d]", i))
		}
		o(&c)
	}
	switch {
	case c.tracers == nil:
		return c, isNil("WithTracerProvider")
	case c.meters == nil:
		return c, isNil("WithMeterProvider")
	case c.propagator == nil:
		return c, isNil("WithPropagator")
	case c.backlog != 0 && c.backlog < time.Second:
		return c, fmt.Errorf("otelpull: %w: WithBacklog: %v is less than 1s; leave it out for no backlog", jetpull.ErrInvalidOption, c.backlog)
	}
	return c, nil
}

// isNil returns the error for a nil option, which would panic later.
func isNil(option string) error {
	return fmt.Errorf("otelpull: %w: %s: is nil; leave it out for the default", jetpull.ErrInvalidOption, option)
}

// WithTracerProvider sets the provider of tracers. The default is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithMeterProvider sets the provider of meters. The default is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithPropagator sets the propagator that reads the trace from a message's headers. The default is the global propagator, which
// reads nothing until the program sets one.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.propagator = p }
}

// WithBacklog makes [Observe] also report the consumer's backlog. When the reader collects, Observe requests the consumer's
// state from the server, at most once per interval, which must be at least 1 s. Off by default.
func WithBacklog(interval time.Duration) Option { return func(c *config) { c.backlog = interval } }

// Middleware returns [Handler] as a [jetpull.Middleware], for [jetpull.Use].
func Middleware(opts ...Option) (jetpull.Middleware, error) { return instrument(opts) }

// Handler returns a handler that calls h for each message in a span. The span continues the trace in the message's headers, and
// links to the span in which the message was created. The duration is recorded in messaging.process.duration, in seconds.
//
// Span and metric have the attribute jetpull.outcome, which is the result that h returned: ack, retry or terminate. An error or
// panic of h marks the span, and both have it as error.type. That is the type of the error, without what [fmt.Errorf],
// errors.Join, [jetpull.Retry] and [jetpull.Terminate] wrap around it, or the result of its method ErrorType() string.
//
// Handler fails with [jetpull.ErrInvalidOption] if h or an option is nil, and if the meter cannot create the histogram.
func Handler(h jetpull.Handler, opts ...Option) (jetpull.Handler, error) {
	if h == nil {
		return nil, fmt.Errorf("otelpull: %w: handler: is nil", jetpull.ErrInvalidOption)
	}
	wrap, err := instrument(opts)
	if err != nil {
		return nil, err
	}
	return wrap(h), nil
}

func instrument(opts []Option) (jetpull.Middleware, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	tracer := c.tracers.Tracer(scope)
	duration, err := c.meters.Meter(scope).Float64Histogram("messaging.process.duration",
		metric.WithUnit("s"), metric.WithDescription("Duration of processing operation."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10))
	if err != nil {
		return nil, fmt.Errorf("otelpull: histogram messaging.process.duration: %w", err)
	}
	i := &instruments{c.propagator, tracer, duration}
	return func(h jetpull.Handler) jetpull.Handler {
		if h == nil {
			return nil // Consume refuses it
		}
		return func(ctx context.Context, m *jetpull.Msg) error { return i.handle(ctx, m, h) }
	}, nil
}

// instruments are the tracer and the histogram of one Middleware.
type instruments struct {
	propagator propagation.TextMapPropagator
	tracer     trace.Tracer
	duration   metric.Float64Histogram
}

func (i *instruments) handle(ctx context.Context, m *jetpull.Msg, h jetpull.Handler) (err error) {
	ctx = i.propagator.Extract(ctx, carrier(m.Headers()))
	meta, _ := m.Metadata() // nil if the message is not from a stream
	common := commonAttributes(meta)
	start := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(append(messageAttributes(m, meta), common...)...)}
	if created := trace.SpanContextFromContext(ctx); created.IsRemote() {
		start = append(start, trace.WithLinks(trace.Link{SpanContext: created}))
	}
	ctx, span := i.tracer.Start(ctx, spanName(meta), start...)
	began := time.Now()
	panicked := true
	defer func() {
		if panicked {
			err = panicError{}
		}
		result := outcome.String(outcomeOf(err))
		span.SetAttributes(result)
		common = append(common, result)
		if err != nil {
			class := errorType(err)
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
			span.SetAttributes(class)
			common = append(common, class)
		}
		i.duration.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(common...))
		span.End()
	}()
	err = h(ctx, m)
	panicked = false
	return err
}

// outcome is the key of the attribute for a handler's result: ack, retry or terminate. jetpull.client.attempts.failed counts
// the final outcomes of messages.
const outcome = attribute.Key("jetpull.outcome")

func outcomeOf(err error) string {
	if err == nil {
		return "ack"
	}
	if _, ok := errors.AsType[*jetpull.TerminateError](err); ok || errors.Is(err, jetpull.ErrPayload) {
		return "terminate"
	}
	return "retry"
}

// spanName returns a name with the stream, not the subject, because tracing backends
// expect few names.
func spanName(meta *jetstream.MsgMetadata) string {
	if meta == nil {
		return process
	}
	return process + " " + meta.Stream
}

// process is the name of a handler's operation.
const process = "process"

// system is the messaging.system of all spans and metrics.
var system = semconv.MessagingSystemKey.String("nats")

// messageAttributes returns the attributes of a span that differ for each message.
func messageAttributes(m *jetpull.Msg, meta *jetstream.MsgMetadata) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingMessageBodySize(len(m.Data())),
		attribute.String("nats.subject", m.Subject()),
	}
	if id := m.Headers().Get(nats.MsgIdHdr); id != "" {
		attrs = append(attrs, semconv.MessagingMessageID(id))
	}
	if meta != nil {
		attrs = append(attrs,
			attribute.Int64("nats.stream.sequence", int64(meta.Sequence.Stream)),
			attribute.Int64("nats.delivered", int64(meta.NumDelivered)))
	}
	return attrs
}

// commonAttributes returns the attributes with few values, which a span and the metric
// share, so that one leads to the other.
func commonAttributes(meta *jetstream.MsgMetadata) []attribute.KeyValue {
	attrs := []attribute.KeyValue{system, semconv.MessagingOperationName(process)}
	if meta != nil {
		attrs = append(attrs,
			semconv.MessagingDestinationName(meta.Stream),
			semconv.MessagingDestinationSubscriptionName(meta.Consumer),
			semconv.MessagingConsumerGroupName(meta.Consumer))
	}
	return attrs
}

// carrier lets a propagator read NATS headers. Senders write the W3C's names in
// lower case, and NATS does not change them.
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
