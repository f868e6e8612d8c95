package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/spans"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

// Poster sends callbacks, as a [webhook.Client] does.
type Poster interface {
	Exchange(ctx context.Context, r webhook.Request) (*webhook.Answer, error)
}

const tracer = "github.com/jetpull/jetpull/broker"

// StartSpan starts the span of a broadcast. parent is a W3C trace parent, or empty. traceparent is to be stored with the message.
func StartSpan(ctx context.Context, name, parent string) (spanCtx context.Context, traceparent string, end func(error)) {
	return spans.BeginMessage(ctx, tracer, name, parent, trace.WithSpanKind(trace.SpanKindProducer))
}

func (d *Dispatch) callback(ctx context.Context, c domain.Consumer, signer *webhook.Signer, m domain.Message, j domain.Job) (a result, err error) {
	ctx, span := spans.Begin(ctx, tracer, "callback", m.Trace, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.destination.name", m.Channel),
		attribute.String("messaging.message.id", m.ID),
		attribute.String("broker.consumer", c.ID),
		attribute.String("broker.job", j.ID.String()),
		attribute.Int("broker.retry", j.Retries),
	))
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, a.Error) // without the answer, which may contain secrets
		}
		span.End()
	}()
	header := d.callbackHeader(c, m, j)
	spans.Inject(ctx, header)
	if signer != nil {
		// Receivers detect duplicates by the ID of the job, not of the message. It is the same for all retries, and differs between consumers.
		signer.Sign(header, j.ID.String(), d.Now(), m.Payload)
	}
	startedAt, begin := d.Now(), time.Now()
	answer, err := d.Poster.Exchange(ctx, webhook.Request{
		Method: http.MethodPost, URL: c.CallbackURL, Header: header, Body: m.Payload, Limit: webhook.ReusableLimit,
		Identity: httpserve.EscapeID(c.Channel) + "/" + httpserve.EscapeID(c.ID),
	})
	if err == nil {
		err = answer.Err()
	}
	if errors.Is(err, webhook.ErrForbiddenAddress) {
		err = fmt.Errorf("%w; see [consumer-connection] networks (--consumer-connection-networks)", err)
	}
	a = newResult(startedAt, time.Since(begin), answer, err)
	d.Metrics.called(a.Attempt, err)
	return a, err
}

// callbackHeader returns the headers of a callback. It sets the message's headers first, then the consumer's, then the broker's, so that the broker's
// cannot be replaced.
func (d *Dispatch) callbackHeader(c domain.Consumer, m domain.Message, j domain.Job) http.Header {
	names := slices.Sorted(maps.Keys(m.Headers))
	header := make(http.Header, len(names)+12)
	for _, name := range names {
		header[http.CanonicalHeaderKey(name)] = []string{m.Headers[name]}
	}
	for name, value := range c.Headers {
		header[name] = []string{value}
	}
	for name, value := range map[string]string{
		"Content-Type":              m.ContentType,
		"X-Broker-Message-Priority": strconv.Itoa(m.Priority),
		"X-Broker-Channel-Id":       m.Channel,
		"X-Broker-Consumer-Id":      c.ID,
		"X-Broker-Message-Id":       m.ID,
		"X-Broker-Attempt":          strconv.Itoa(j.Attempts + 1),
		"User-Agent":                d.Rules.UserAgent,
		"X-Request-Id":              domain.NewID(),
		"X-Broker-Metadata-Headers": strings.Join(names, ","),

		http.CanonicalHeaderKey(d.Rules.TokenHeader): c.Token,
	} {
		header[name] = []string{value}
	}
	if m.EventType != "" {
		header["X-Broker-Event-Type"] = []string{m.EventType}
	}
	if j.Replay != "" {
		header["X-Broker-Replay"] = []string{j.Replay}
	} else {
		delete(header, "X-Broker-Replay") // set by the producer
	}
	for name, values := range header {
		if strings.HasPrefix(name, webhook.HeaderPrefix) {
			delete(header, name) // only the broker sets it, for consumers with a secret
			continue
		}
		header[name] = []string{headerSafe(values[0])}
	}
	return header
}

// result is the result of one callback.
type result struct {
	domain.Attempt
	answer http.Header // as received
}

// maxRetryAfter limits the wait that a receiver can ask for.
const maxRetryAfter = time.Hour

// retryAfter returns the wait that the receiver requests with 429 or 503 and Retry-After. 0 means none.
func (a result) retryAfter(now time.Time) time.Duration {
	if a.StatusCode != http.StatusTooManyRequests && a.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	wait, _ := webhook.RetryAfter(a.answer, now)
	return min(wait, maxRetryAfter)
}

func newResult(startedAt time.Time, took time.Duration, answer *webhook.Answer, err error) result {
	a := result{Attempt: domain.Attempt{StartedAt: startedAt, Duration: took}}
	if answer != nil {
		a.StatusCode, a.Body, a.answer = answer.Code, answer.Body[:min(len(answer.Body), bodyLimit)], answer.Header
	}
	switch {
	case err == nil:
	case a.StatusCode != 0 && answer.Broken == nil:
		a.Error = failed(a.StatusCode)
	default:
		a.Error = err.Error()
	}
	return a
}

// attempted counts an ended attempt in the record to write. It adds the attempt to the record, or stores it separately. If it cannot store the
// attempt, the history lacks it, but the outcome still counts.
func (x *Jobs) attempted(ctx context.Context, c domain.Consumer, next domain.Job, a result) domain.Job {
	next.Attempts++
	next.Took, next.Code = a.Duration.Truncate(time.Microsecond), a.StatusCode
	a.Number = next.Attempts
	if next.Attempts == 1 && next.Status == domain.Delivered {
		return next
	}
	if x.Full() != nil {
		a.answer, a.Body = nil, nil
	}
	if err := x.Records.KeepAttempt(ctx, next.ID, a.masked(c)); err != nil {
		x.Log.Log(ctx, x.troubleLevel(), "an attempt is missing in the history", "job", next.ID, "attempt", a.Number, "error", err)
	}
	return next
}

// ownHeaders lists the headers of a callback that the broker sets, except the token's header and Webhook-….
var ownHeaders = []string{
	"Content-Type", "X-Broker-Message-Priority", "X-Broker-Channel-Id", "X-Broker-Consumer-Id", "X-Broker-Message-Id", "User-Agent",
	"X-Request-Id", "X-Broker-Metadata-Headers", "X-Broker-Event-Type", "X-Broker-Replay", "X-Broker-Attempt", "Traceparent",
}

// CheckHeaderName refuses a header name that callbacks cannot have in addition to the broker's own headers.
func CheckHeaderName(name string) error {
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("%q is no name of an HTTP header: use letters, digits and hyphens", name)
	}
	canonical := http.CanonicalHeaderKey(name)
	if slices.Contains(ownHeaders, canonical) || webhook.OfConnection(canonical) || strings.HasPrefix(canonical, webhook.HeaderPrefix) {
		return fmt.Errorf("%q is a header that callbacks have anyway: use another", name)
	}
	return nil
}

// maxHeaders is the maximum number of headers of a consumer.
const maxHeaders = 20

// ParseHeaders parses the headers of a consumer from a JSON object. Its errors do not show values.
func ParseHeaders(text, tokenHeader string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var given, headers map[string]string
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return nil, errors.New(`it is no JSON object with strings as values: give one, such as {"X-Api-Key":"…"}`)
	}
	if len(given) > maxHeaders {
		return nil, fmt.Errorf("it has %d headers: give %d at most", len(given), maxHeaders)
	}
	for name, value := range given {
		canonical := http.CanonicalHeaderKey(name)
		if err := CheckHeaderName(name); err != nil {
			return nil, err
		}
		if strings.HasPrefix(canonical, "X-Broker-") || canonical == http.CanonicalHeaderKey(tokenHeader) {
			return nil, fmt.Errorf("%q is a header of the broker: use another", name)
		}
		if err := domain.CheckSent(value); err != nil {
			return nil, fmt.Errorf("the value of %q: %w", name, err)
		}
		if _, twice := headers[canonical]; twice {
			return nil, fmt.Errorf("%q is there twice: the names of headers have no case", canonical)
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[canonical] = value
	}
	return headers, nil
}

// headerSafe replaces characters that are not allowed in header values. IDs may contain them.
func headerSafe(value string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return ' '
		}
		return r
	}, value)
}
