package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const userAgent = "jetpull-relay"

func itoa(n int) string { return strconv.Itoa(n) }

// WebhookID is the webhook-id of a message.
func WebhookID(source, id string) string {
	return httpserve.EscapeID(source) + "/" + httpserve.EscapeID(id)
}

// reserved headers are the relay's, or the connection's.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Keep-Alive": true, "Upgrade": true,
	"Te": true, "Trailer": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Expect": true,
}

// reservedHeader tells whether a sender must not set a header of requests to receivers.
func reservedHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return reserved[name] || strings.HasPrefix(name, "Webhook-") || strings.HasPrefix(name, "Relay-")
}

// maxHeaders bounds the headers that a sender sets, with their values in bytes.
const maxHeaders = 16 << 10

// CheckHeaders returns why a sender cannot set the headers of requests to a receiver, or nil.
func CheckHeaders(headers map[string]string) error {
	size, names := 0, map[string]bool{}
	for name, value := range headers {
		name = http.CanonicalHeaderKey(name)
		size += len(name) + len(value)
		switch {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return fmt.Errorf("header %q is not one that HTTP can carry", name)
		case reservedHeader(name):
			return fmt.Errorf("header %q is the relay's", name)
		case names[name]:
			return fmt.Errorf("header %q is given twice", name)
		}
		names[name] = true
	}
	if size > maxHeaders {
		return fmt.Errorf("headers have %d bytes: %d are the most", size, maxHeaders)
	}
	return nil
}

// post makes the POST of an attempt.
func (w *core) post(ctx context.Context, r store.Receiver, e *store.Entry) (*webhook.Answer, error) {
	h := http.Header{"User-Agent": {userAgent}}
	h.Set("Content-Type", "application/json")
	if !json.Valid(e.Payload) {
		h.Set("Content-Type", "application/octet-stream")
	}
	for name, value := range e.Headers {
		if !reservedHeader(name) {
			h.Set(name, value)
		}
	}
	h.Set("Relay-Attempt", itoa(e.Attempt))
	w.sign(h, r.Secrets, WebhookID(e.Source, e.ID), e.Payload)
	return w.exchange(ctx, "post", e, webhook.Request{
		Method: http.MethodPost, URL: r.PostEndpoint, Header: h, Body: e.Payload, Timeout: r.Timeout, Limit: w.maxResponse(),
	})
}

// sign sets the headers of Standard Webhooks, the signature only where there are secrets. Those were checked when they were configured.
func (w *core) sign(h http.Header, secrets []string, id string, payload []byte) {
	now := wall()
	h.Set(webhook.HeaderID, id)
	h.Set(webhook.HeaderTimestamp, itoa(int(now.Unix())))
	if len(secrets) == 0 {
		return
	}
	signer, err := webhook.NewSigner(strings.Join(secrets, " "))
	if err != nil {
		w.log.Error("a request goes out unsigned", "error", err)
		return
	}
	signer.Sign(h, id, now, payload)
}

// get asks a receiver's status endpoint about a message.
func (w *core) get(ctx context.Context, r store.Receiver, e *store.Entry) (*webhook.Answer, error) {
	h := http.Header{"User-Agent": {userAgent}}
	w.sign(h, r.Secrets, WebhookID(e.Source, e.ID), nil)
	target := strings.NewReplacer("{source_id}", escape(e.Source), "{message_id}", escape(e.ID)).Replace(r.StatusEndpoint)
	answer, err := w.exchange(ctx, "poll", e, webhook.Request{
		Method: http.MethodGet, URL: target, Header: h, Timeout: r.Timeout, Limit: w.maxResponse(),
	})
	w.log.Debug("poll", "node", w.node, "source", e.Source, "message", e.ID, "receiver", r.Name, "result", result(answer, err), "trace", traceID(e.Trace))
	if err != nil {
		return nil, err
	}
	w.cfg.Metrics.polled(r.Name, answer.Code)
	if unknown(answer) {
		return nil, answer.Broken
	}
	return answer, nil
}

// escape writes an ID so that it can stand in a path as well as in a query.
func escape(id string) string {
	if strings.Trim(id, ".") == "" {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return strings.ReplaceAll(url.QueryEscape(id), "+", "%20")
}

// outcome is the event that a POST ended with, without its times.
func outcome(r store.Receiver, answer *webhook.Answer, err error) machine.Event {
	event := machine.Event{Kind: machine.Answered, Outcome: machine.Retry}
	switch {
	case answer == nil:
		event.Note.Error = err.Error()
		if !errors.Is(err, webhook.ErrNotSent) {
			event.Kind = machine.Lost
		}
		return event
	case unknown(answer):
		event.Kind = machine.Lost
		event.Note.Code, event.Note.Error = answer.Code, fmt.Sprintf("the answer broke off: %v", answer.Broken)
		return event
	}
	event.Note.Code, event.Outcome = answer.Code, machine.Classify(answer.Code, r.StatusEndpoint != "")
	switch event.Outcome {
	case machine.Result:
		if answer.Code != http.StatusAccepted {
			event.Response, event.Truncated = response(answer), answer.Truncated
		}
	case machine.Retry, machine.Refused:
		event.Note.Error = fmt.Sprintf("answered with status %d: %.200q", answer.Code, answer.Body)
		event.RetryAfter = retryAfter(answer.Header)
	case machine.Pending:
	}
	return event
}

// health is what a POST says of its receiver.
type health int

const (
	noPOST health = iota // none was made
	well
	unwell
	neither // it says nothing about whether the receiver works
)

// judge says whether a receiver works, for how long it wants no POST, and whether its endpoint is gone for good.
func judge(answer *webhook.Answer, err error) (verdict health, pause time.Duration, gone bool) {
	switch {
	case answer == nil && errors.Is(err, webhook.ErrForbiddenAddress):
		return neither, 0, false
	case answer == nil, unknown(answer):
		return unwell, 0, false
	case answer.Code == http.StatusGone:
		return neither, 0, true
	case answer.Code == http.StatusTooManyRequests, answer.Code == http.StatusServiceUnavailable:
		if pause = retryAfter(answer.Header); pause > 0 {
			return neither, pause, false
		}
	}
	if answer.Code >= http.StatusInternalServerError {
		return unwell, 0, false
	}
	return well, 0, false
}

// unknown tells whether an answer was to have a response that broke off.
func unknown(a *webhook.Answer) bool {
	return a.Broken != nil && a.Code != http.StatusAccepted && machine.Classify(a.Code, false) == machine.Result
}

// maxEscape is how many bytes JSON makes of one at most: a control character, and <, > or &, are six.
const maxEscape = len(`\u0000`)

// MostJSON is how many bytes the JSON of a response has at most.
func MostJSON(response int) int { return maxEscape*response + len(`""`) }

// maxResponse is how many bytes of a response are kept: as JSON they are no larger than what the server takes.
func (w *core) maxResponse() int {
	return min(w.cfg.MaxResponse, (w.store.MaxPayload()-len(`""`))/maxEscape)
}

// nested is JSON a few levels deeper, as it is in records, answers and callbacks: what is nested too deep there cannot be read.
func nested(value []byte) []byte { return slices.Concat([]byte("[[[["), value, []byte("]]]]")) }

// response is the body of an answer as the sender gets it: the receiver's JSON, or its text as a string.
func response(a *webhook.Answer) json.RawMessage {
	switch {
	case len(a.Body) == 0:
		return nil
	case !a.Truncated && utf8.Valid(a.Body) && json.Valid(a.Body) && json.Valid(nested(a.Body)):
		return a.Body
	}
	// A string of valid UTF-8 can always be written.
	text, _ := json.Marshal(strings.ToValidUTF8(string(a.Body), "\uFFFD"))
	return text
}

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
