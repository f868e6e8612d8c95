package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// tracer makes the spans of the relay, with the provider of the moment. Without one they cost nothing.
func tracer() trace.Tracer { return otel.Tracer("github.com/jetpull/jetpull/relay") }

const (
	headerTrace = "traceparent"
	// maxTrace bounds the traceparent of a sender, which has 55 bytes today.
	maxTrace = 128
)

// about are the attributes that say which message a span is of.
func about(source, id, receiver string) trace.SpanStartEventOption {
	return trace.WithAttributes(
		attribute.String("relay.source_id", source), attribute.String("relay.message_id", id), attribute.String("relay.receiver", receiver))
}

// beginTrace begins the span of a message that comes in. From then on the message's trace parent is that span.
func beginTrace(o *Offer, kind trace.SpanKind) (end func(error)) {
	if len(o.Trace) > maxTrace {
		o.Trace = ""
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{headerTrace: o.Trace})
	ctx, span := tracer().Start(ctx, "message", trace.WithSpanKind(kind), about(o.Source, o.ID, o.Receiver))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	o.Trace = carrier[headerTrace]
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// exchange makes a request that belongs to a message, in a span of its own.
func (w *core) exchange(ctx context.Context, name string, e *store.Entry, r webhook.Request) (*webhook.Answer, error) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{headerTrace: e.Trace})
	ctx, span := tracer().Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), about(e.Source, e.ID, e.Receiver),
		trace.WithAttributes(attribute.Int("relay.attempt", e.Attempt), attribute.String("http.request.method", r.Method)))
	defer span.End()
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	answer, err := w.cfg.Client.Exchange(ctx, r)
	err = withoutURL(err)
	switch {
	case err != nil:
		span.SetAttributes(attribute.String("error.type", result(nil, err)))
		span.SetStatus(codes.Error, err.Error())
	default:
		span.SetAttributes(attribute.Int("http.response.status_code", answer.Code))
		if answer.Code >= http.StatusBadRequest {
			span.SetAttributes(attribute.String("error.type", strconv.Itoa(answer.Code)))
			span.SetStatus(codes.Error, "")
		}
	}
	return answer, err
}

// withoutURL is the error of a request without its URL, of which the path may be a secret: a sender sees the errors of its messages,
// and not the endpoints of receivers.
func withoutURL(err error) error {
	failed, ok := errors.AsType[*url.Error](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, webhook.ErrNotSent):
		return fmt.Errorf("%w: %w", webhook.ErrNotSent, failed.Err)
	}
	return failed.Err
}

// traceID is the part of a trace parent by which logs and traces are searched.
func traceID(parent string) string {
	if parts := strings.SplitN(parent, "-", 3); len(parts) == 3 {
		return parts[1]
	}
	return ""
}
