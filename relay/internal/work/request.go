package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/metrics"
	"github.com/jetpull/jetpull/internal/service/spans"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const userAgent = "jetpull-relay"

// WebhookID returns the webhook-id of a message.
func WebhookID(source, id string) string {
	return httpserve.EscapeID(source) + "/" + httpserve.EscapeID(id)
}

// maxHeaders bounds the names and values of a sender's headers, in bytes.
const maxHeaders = 16 << 10

// CheckHeaders returns the reason why a sender cannot set the headers of requests to a receiver, or nil.
func CheckHeaders(headers map[string]string) error {
	size, names := 0, map[string]bool{}
	for name, value := range headers {
		name = http.CanonicalHeaderKey(name)
		size += len(name) + len(value)
		switch {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return fmt.Errorf("header %q is not one that HTTP can carry", name)
		case webhook.OfConnection(name) || strings.HasPrefix(name, webhook.HeaderPrefix) || strings.HasPrefix(name, "Relay-"):
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

func identity(r store.Receiver) string { return "receivers/" + httpserve.EscapeID(r.Name) }

func (w *core) post(ctx context.Context, r store.Receiver, e *store.Entry) (*webhook.Answer, error) {
	h := http.Header{"User-Agent": {userAgent}, "Content-Type": {"application/json"}}
	if !json.Valid(e.Payload) {
		h.Set("Content-Type", "application/octet-stream")
	}
	for name, value := range e.Headers {
		h.Set(name, value)
	}
	h.Set("Relay-Attempt", strconv.Itoa(e.Attempt))
	return w.exchange(ctx, "post", e, r.Secrets, WebhookID(e.Source, e.ID), webhook.Request{
		Identity: identity(r), Method: http.MethodPost, URL: r.PostEndpoint, Header: h, Body: e.Payload, Timeout: r.Timeout, Limit: w.maxResponse(),
	})
}

// The placeholders of a status endpoint. They may be in its path and query, but not in its host, because a sender could then choose the host.
const (
	SourcePlaceholder  = "{source_id}"
	MessagePlaceholder = "{message_id}"
)

// get asks a receiver's status endpoint about a message.
func (w *core) get(ctx context.Context, r store.Receiver, e *store.Entry) (*webhook.Answer, error) {
	h := http.Header{"User-Agent": {userAgent}}
	escape := func(id string) string { return strings.ReplaceAll(url.QueryEscape(id), "+", "%20") }
	target := strings.NewReplacer(SourcePlaceholder, escape(e.Source), MessagePlaceholder, escape(e.ID)).Replace(r.StatusEndpoint)
	answer, err := w.exchange(ctx, "poll", e, r.Secrets, WebhookID(e.Source, e.ID), webhook.Request{
		Identity: identity(r), Method: http.MethodGet, URL: target, Header: h, Timeout: r.Timeout, Limit: w.maxResponse(),
	})
	w.log.Debug("poll", "node", w.Node, "source", e.Source, "message", e.ID, "receiver", r.Name, "result", result(answer, err), "trace",
		traceID(e.Trace))
	if err != nil {
		return nil, err
	}
	w.Metrics.polls.WithLabelValues(r.Name, metrics.Class(answer.Code)).Inc()
	if unknown(answer) {
		return nil, answer.Broken
	}
	return answer, nil
}

// verdict is the result of a POST.
type verdict struct {
	event  machine.Event // without its times
	health gate.Outcome  // of the receiver
	hold   time.Duration // for which the receiver wants no POST
	gone   bool          // the receiver's endpoint is gone for good
}

func judge(r store.Receiver, answer *webhook.Answer, err error) verdict {
	v := verdict{event: machine.Event{Kind: machine.Answered, Outcome: machine.Retry}, health: gate.Failure}
	event, note := &v.event, &v.event.Note
	if answer == nil {
		note.Error = err.Error()
		if !errors.Is(err, webhook.ErrNotSent) {
			event.Kind = machine.Lost
		}
		if errors.Is(err, webhook.ErrForbiddenAddress) {
			v.health = gate.Unclear
		}
		return v
	}
	note.Code, note.Answer = answer.Code, noted(answer)
	if unknown(answer) {
		event.Kind, note.Error = machine.Lost, fmt.Sprintf("the answer broke off: %v", answer.Broken)
		return v
	}
	switch event.Outcome = machine.Classify(answer.Code, r.StatusEndpoint != ""); event.Outcome {
	case machine.Result:
		if answer.Code != http.StatusAccepted {
			event.Response, event.Truncated = response(answer), answer.Truncated
			note.Answer.Body = ""
		}
	case machine.Retry, machine.Refused:
		note.Error = fmt.Sprintf("answered with status %d: %.200q", answer.Code, answer.Body)
		event.RetryAfter = retryAfter(answer.Header)
	case machine.Pending:
	}
	switch busy := answer.Code == http.StatusTooManyRequests || answer.Code == http.StatusServiceUnavailable; {
	case answer.Code == http.StatusGone:
		v.health, v.gone = gate.Unclear, true
	case busy && event.RetryAfter > 0:
		v.health, v.hold = gate.Unclear, event.RetryAfter
	case answer.Code < http.StatusInternalServerError:
		v.health = gate.Success
	}
	return v
}

// maxNoted bounds the headers and the body of an answer that a record keeps, in bytes of each.
const maxNoted = 1 << 10

// noted returns the beginning of an answer, as text.
func noted(answer *webhook.Answer) *machine.Answer {
	note := &machine.Answer{Headers: map[string]string{}, Body: strings.ToValidUTF8(string(answer.Body[:min(len(answer.Body), maxNoted)]), "\uFFFD")}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(answer.Header)) {
		value := strings.ToValidUTF8(strings.Join(answer.Header[name], ", "), "\uFFFD")
		if size += len(name) + len(value); size > maxNoted {
			break
		}
		note.Headers[name] = value
	}
	return note
}

// unknown reports whether the answer has a response that was cut off.
func unknown(a *webhook.Answer) bool {
	return a.Broken != nil && a.Code != http.StatusAccepted && machine.Classify(a.Code, false) == machine.Result
}

// maxEscape is the maximum number of bytes that JSON needs for one byte: a control character, <, > or & takes six.
const maxEscape = len(`\u0000`)

// MostJSON returns the maximum size, as JSON, of a response of so many bytes.
func MostJSON(response int) int { return maxEscape*response + len(`""`) }

// maxResponse returns the maximum number of bytes of a response that are kept. As JSON, they fit into an entry of a queue.
func (w *core) maxResponse() int {
	return min(w.cfg.MaxResponse, (w.store.MaxPayload()-len(`""`))/maxEscape)
}

// response returns the body of an answer for the sender: the receiver's JSON, or its text as a string. JSON counts as text if its nesting is too deep
// to be decoded a few levels deeper, in records, answers and callbacks.
func response(a *webhook.Answer) json.RawMessage {
	nested := func() []byte { return slices.Concat([]byte("[[[["), a.Body, []byte("]]]]")) }
	switch {
	case len(a.Body) == 0:
		return nil
	case !a.Truncated && utf8.Valid(a.Body) && json.Valid(a.Body) && json.Valid(nested()):
		return a.Body
	}
	// Marshal cannot fail for a string of valid UTF-8.
	text, _ := json.Marshal(strings.ToValidUTF8(string(a.Body), "\uFFFD"))
	return text
}

const tracer = "github.com/jetpull/jetpull/relay"

// about returns the attributes that identify the message of a span.
func about(source, id, receiver string) trace.SpanStartEventOption {
	return trace.WithAttributes(
		attribute.String("relay.source_id", source), attribute.String("relay.message_id", id), attribute.String("relay.receiver", receiver))
}

// exchange makes a signed request for a message, in its own span.
func (w *core) exchange(ctx context.Context, name string, e *store.Entry, secrets []string, id string, r webhook.Request) (*webhook.Answer, error) {
	w.sign(r.Header, secrets, id, r.Body)
	ctx, span := spans.Begin(ctx, tracer, name, e.Trace, trace.WithSpanKind(trace.SpanKindClient), about(e.Source, e.ID, e.Receiver),
		trace.WithAttributes(attribute.Int("relay.attempt", e.Attempt), attribute.String("http.request.method", r.Method)))
	defer span.End()
	spans.Inject(ctx, r.Header)
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

// sign sets the headers of Standard Webhooks. It adds the signature if there are secrets, which were validated with the configuration.
func (w *core) sign(h http.Header, secrets []string, id string, payload []byte) {
	now := wall()
	h.Set(webhook.HeaderID, id)
	h.Set(webhook.HeaderTimestamp, strconv.Itoa(int(now.Unix())))
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

// withoutURL removes the URL from the error of a request: a sender sees the errors of its messages, and the endpoints of receivers may be secret.
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

// traceID returns the trace ID of a traceparent, for searches in logs and traces.
func traceID(parent string) string {
	if parts := strings.SplitN(parent, "-", 3); len(parts) == 3 {
		return parts[1]
	}
	return ""
}
