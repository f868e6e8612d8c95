// Package spans starts the spans of messages. The trace parent of a message is stored with it, so that the spans of other requests and processes
// belong to the same trace. Without a provider, spans cost nothing.
package spans

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// header is the header of a trace parent (W3C Trace Context).
const header = "traceparent"

// Begin starts a span with a trace parent, which may be empty. tracer is the name of a package.
func Begin(ctx context.Context, tracer, name, parent string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: parent})
	return otel.Tracer(tracer).Start(ctx, name, opts...)
}

// BeginMessage is like [Begin], for an incoming message. own is the trace parent to store with it. end ends the span, with the message's error.
func BeginMessage(ctx context.Context, tracer, name, parent string, opts ...trace.SpanStartOption) (_ context.Context, own string, end func(error)) {
	ctx, span := Begin(ctx, tracer, name, parent, opts...)
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return ctx, carrier[header], func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Inject sets the header of a request that belongs to ctx's span.
func Inject(ctx context.Context, h http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}
