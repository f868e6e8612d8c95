package broker

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// tracer makes the spans of the broker, with the provider of the moment. Without
// one they cost nothing.
func tracer() trace.Tracer { return otel.Tracer("github.com/jetpull/jetpull/broker") }

var traceContext = propagation.TraceContext{}

const traceParent = "traceparent"

// StartSpan begins the span of a broadcast. The parent is a W3C trace parent,
// or empty; the returned one is to be kept with the message.
func StartSpan(ctx context.Context, name, parent string) (spanCtx context.Context, own string, end func(error)) {
	ctx = traceContext.Extract(ctx, propagation.MapCarrier{traceParent: parent})
	ctx, span := tracer().Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer))
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	return ctx, carrier[traceParent], func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// callback sends one message to a push consumer.
func (b *Broker) callback(ctx context.Context, c Consumer, signer Signer, m Message, j Job) (a Attempt, err error) {
	ctx = traceContext.Extract(ctx, propagation.MapCarrier{traceParent: m.Trace})
	ctx, span := tracer().Start(ctx, "callback", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.destination.name", m.Channel),
		attribute.String("messaging.message.id", m.ID),
		attribute.String("broker.consumer", c.ID),
		attribute.String("broker.job", j.ID.String()),
		attribute.Int("broker.retry", j.Retries),
	))
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}()
	header := b.callbackHeader(c, m, j)
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	if own := carrier[traceParent]; own != "" {
		header["Traceparent"] = []string{own}
	}
	if signer != nil {
		// The job's ID, not the message's: it stays the same over retries and
		// differs between consumers, which is what receivers check for.
		signer.Sign(header, j.ID.String(), time.Now(), m.Payload)
	}
	begin := time.Now()
	reply, err := b.poster.Post(ctx, Callback{URL: c.CallbackURL, Header: header, Payload: m.Payload, Keep: attemptBody + maskReach})
	a = newAttempt(begin, reply, err)
	b.metrics.called(a, err)
	return a, err
}

// callbackHeader builds the headers of the contract. The message's own come
// first, so that none of them can replace one of the broker's.
func (b *Broker) callbackHeader(c Consumer, m Message, j Job) map[string][]string {
	names := slices.Sorted(maps.Keys(m.Headers))
	header := make(map[string][]string, len(names)+12)
	for _, name := range names {
		header[canonical(name)] = []string{m.Headers[name]}
	}
	for name, value := range map[string]string{
		"Content-Type":              m.ContentType,
		"X-Broker-Message-Priority": strconv.Itoa(m.Priority),
		"X-Broker-Channel-Id":       m.Channel,
		"X-Broker-Consumer-Id":      c.ID,
		"X-Broker-Message-Id":       m.ID,
		"User-Agent":                b.cfg.Connection.UserAgent,
		"X-Request-Id":              NewID(),
		"X-Broker-Metadata-Headers": strings.Join(names, ","),

		canonical(b.cfg.Connection.TokenHeader): c.Token,
	} {
		header[name] = []string{value}
	}
	if m.EventType != "" {
		header["X-Broker-Event-Type"] = []string{m.EventType}
	}
	if j.Replay != "" {
		header["X-Broker-Replay"] = []string{j.Replay}
	}
	for name, values := range header {
		header[name] = []string{headerSafe(values[0])}
	}
	return header
}

// canonical spells a header's name as HTTP libraries do.
func canonical(name string) string {
	b := []byte(name)
	upper := true
	for i, c := range b {
		switch {
		case upper && 'a' <= c && c <= 'z':
			b[i] = c - 'a' + 'A'
		case !upper && 'A' <= c && c <= 'Z':
			b[i] = c - 'A' + 'a'
		}
		upper = c == '-'
	}
	return string(b)
}

// headerSafe replaces what no header may have. An ID may have it.
func headerSafe(value string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return ' '
		}
		return r
	}, value)
}
