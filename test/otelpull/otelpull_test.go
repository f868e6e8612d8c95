package test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/otelpull"
	"github.com/jetpull/jetpull/test/servertest"
)

// scene is a consumer with messages and an SDK that records.
type scene struct {
	sub    *jetpull.Subscription
	js     jetstream.JetStream
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	opts   []otelpull.Option
}

func newScene(t *testing.T) *scene {
	srv := servertest.RunServer(t)
	s := &scene{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	s.js = natstest.JetStream(t, srv.Connect(t))
	natstest.Stream(t, s.js, "ORDERS", "orders.>")
	natstest.Consumer(t, s.js, "ORDERS", jetstream.ConsumerConfig{Durable: "work", AckPolicy: jetstream.AckExplicitPolicy})
	var err error
	s.sub, err = jetpull.Subscribe(t.Context(), s.js, "ORDERS", "work")
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.sub.Close(context.Background()) })
	s.opts = []otelpull.Option{
		otelpull.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))),
		otelpull.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))),
		otelpull.WithPropagator(propagation.TraceContext{}),
	}
	return s
}

// handle consumes one message that was published with headers.
func (s *scene) handle(t *testing.T, header nats.Header, h jetpull.Handler) {
	_, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: "orders.new", Data: []byte("hello"), Header: header})
	require.NoError(t, err)
	wrapped, err := otelpull.Handler(h, s.opts...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, s.sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		defer cancel()
		return wrapped(ctx, m)
	}))
}

func TestHandlerContinuesTheTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, name := range []string{"traceparent", "Traceparent"} {
		s := newScene(t)
		var inside trace.SpanContext
		s.handle(t, nats.Header{name: {parent}, nats.MsgIdHdr: {"m1"}}, func(ctx context.Context, _ *jetpull.Msg) error {
			inside = trace.SpanContextFromContext(ctx)
			return nil
		})
		require.Len(t, s.spans.Ended(), 1)
		span := s.spans.Ended()[0]
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext().TraceID().String(), name)
		require.Equal(t, "b7ad6b7169203331", span.Parent().SpanID().String())
		require.Equal(t, span.SpanContext().SpanID(), inside.SpanID(), "the handler runs in the span")
		require.Len(t, span.Links(), 1)
		require.Equal(t, span.Parent().SpanID(), span.Links()[0].SpanContext.SpanID(), "that in which the message was created")
		require.Equal(t, "process ORDERS", span.Name(), "subjects can be as many as messages")
		require.Equal(t, trace.SpanKindConsumer, span.SpanKind())
		require.Equal(t, codes.Unset, span.Status().Code)
		require.Subset(t, span.Attributes(), []attribute.KeyValue{
			attribute.String("messaging.system", "nats"),
			attribute.String("messaging.operation.name", "process"),
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", "ORDERS"),
			attribute.String("messaging.destination.subscription.name", "work"),
			attribute.String("messaging.consumer.group.name", "work"),
			attribute.String("messaging.message.id", "m1"),
			attribute.Int("messaging.message.body.size", 5),
			attribute.String("nats.subject", "orders.new"),
			attribute.Int64("nats.stream.sequence", 1),
			attribute.Int64("nats.delivered", 1),
		})
	}
}

func TestHandlerMarksErrorsAndPanics(t *testing.T) {
	s := newScene(t)
	s.handle(t, nil, func(context.Context, *jetpull.Msg) error {
		return jetpull.Terminate("no such order", errors.New("order 7 is unknown"))
	})
	s.handle(t, nil, func(context.Context, *jetpull.Msg) error { panic("boom") })
	ended := s.spans.Ended()
	require.Len(t, ended, 2)
	require.Equal(t, codes.Error, ended[0].Status().Code)
	require.Contains(t, ended[0].Status().Description, "order 7 is unknown")
	require.Equal(t, codes.Error, ended[1].Status().Code)
	require.Contains(t, ended[1].Status().Description, "panicked")
	require.Contains(t, ended[0].Attributes(), attribute.String("jetpull.outcome", "terminate"))
	require.Contains(t, ended[1].Attributes(), attribute.String("jetpull.outcome", "retry"))
	require.Empty(t, ended[0].Links(), "nobody said where the message was created")
}

func TestMetrics(t *testing.T) {
	s := newScene(t)
	registration, err := otelpull.Observe(s.sub, []attribute.KeyValue{attribute.String("messaging.consumer.group.name", "work")}, s.opts...)
	require.NoError(t, err)
	s.handle(t, nil, func(context.Context, *jetpull.Msg) error { return nil })
	got := s.collect(t)
	consumed := []attribute.KeyValue{
		attribute.String("messaging.consumer.group.name", "work"),
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.name", "pull"),
	}
	for _, attr := range consumed {
		require.EqualValues(t, 1, sum(t, got, "messaging.client.consumed.messages", attr))
	}
	require.EqualValues(t, 1, sum(t, got, "jetpull.client.acknowledgements", attribute.String("kind", "ack")))
	require.EqualValues(t, 0, sum(t, got, "jetpull.client.acknowledgements", attribute.String("kind", "nak")))
	require.GreaterOrEqual(t, sum(t, got, "jetpull.client.pulls", attribute.String("messaging.system", "nats")), int64(1))
	duration, ok := got["messaging.process.duration"].(metricdata.Histogram[float64])
	require.True(t, ok)
	require.EqualValues(t, 1, duration.DataPoints[0].Count)
	require.Equal(t, attribute.NewSet(
		attribute.String("jetpull.outcome", "ack"),
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.destination.name", "ORDERS"),
		attribute.String("messaging.destination.subscription.name", "work"),
		attribute.String("messaging.consumer.group.name", "work"),
	), duration.DataPoints[0].Attributes, "by which its spans can be found")
	require.NoError(t, registration.Unregister())
	require.NotContains(t, s.collect(t), "jetpull.client.pulls")
}

func (s *scene) collect(t *testing.T) map[string]metricdata.Aggregation {
	var all metricdata.ResourceMetrics
	require.NoError(t, s.reader.Collect(t.Context(), &all))
	got := map[string]metricdata.Aggregation{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			got[m.Name] = m.Data
		}
	}
	return got
}

// sum is the value of a metric's data points that have attr.
func sum(t *testing.T, got map[string]metricdata.Aggregation, name string, attr attribute.KeyValue) (n int64) {
	data, ok := got[name].(metricdata.Sum[int64])
	require.True(t, ok, "%s is %T", name, got[name])
	found := false
	for _, p := range data.DataPoints {
		if v, has := p.Attributes.Value(attr.Key); has && v == attr.Value {
			n += p.Value
			found = true
		}
	}
	require.True(t, found, "%s has no point with %v", name, attr)
	return n
}

// A nil handler inside the wrapper would pass Consume's own check and panic for
// each message.
func TestNilIsRefused(t *testing.T) {
	_, err := otelpull.Handler(nil)
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	_, err = otelpull.Observe(nil, nil)
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	_, err = otelpull.ObserveSet(nil, nil)
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	_, err = otelpull.Middleware(nil)
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	_, err = otelpull.Middleware(otelpull.WithBacklog(time.Millisecond))
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
}
