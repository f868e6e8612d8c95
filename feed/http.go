package feed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	maxAnswer      = 1 << 20
	maxExcerpt     = 256
	defaultTimeout = time.Minute
	healthTimeout  = 5 * time.Second
	healthEvery    = time.Second
)

// The headers of a request of [NewHTTPProcessor].
const (
	HeaderItem           = "Feed-Item"
	HeaderPartition      = "Feed-Partition"
	HeaderGate           = "Feed-Gate"
	HeaderAttempt        = "Feed-Attempt"
	HeaderIdempotencyKey = "Idempotency-Key"
)

// header returns the headers that describe an item, besides its data, to a handler outside this process.
func (it Item) header() map[string][]string {
	return map[string][]string{
		HeaderItem: {it.ID}, HeaderPartition: {it.Partition}, HeaderGate: {strconv.Itoa(it.Gate)},
		HeaderAttempt: {strconv.Itoa(it.Attempt)}, HeaderIdempotencyKey: {it.IdempotencyKey()},
	}
}

// HTTPOption changes how the processor of [NewHTTPProcessor] works.
type HTTPOption func(*httpProcessor) error

// Timeout sets the time limit of a request with its answer, at least 1 ms. The default is 1 minute. A request that exceeds it is a failed attempt.
func Timeout(d time.Duration) HTTPOption {
	return func(p *httpProcessor) error {
		p.timeout = d
		return check(d >= time.Millisecond, "Timeout", "%v is below 1ms", d)
	}
}

// Secret signs requests as Standard Webhooks describes, with the idempotency key as the webhook-id. secrets are one or more secrets in base64,
// separated by spaces, with or without the prefix whsec_. Each request has a signature for each secret. By default requests are not signed.
func Secret(secrets string) HTTPOption {
	return func(p *httpProcessor) error {
		signer, err := webhook.NewSigner(secrets)
		p.signer = signer
		return check(err == nil, "Secret", "%v", err)
	}
}

// Health sets a URL that answers GET with 2xx while the handler can work. The processor requests it before the first item, and after a request
// that got no answer or a 5xx. Until it answers with 2xx, the processor requests it once a second and sends no items; no attempt is counted.
// Waiting items count as running, so a watcher that is stopped meanwhile takes all of [DrainTimeout]. None by default.
func Health(url string) HTTPOption {
	return func(p *httpProcessor) error {
		p.health = url
		p.sick.Store(true)
		return checkURL("Health", url)
	}
}

type httpProcessor struct {
	url, health string
	timeout     time.Duration
	signer      *webhook.Signer
	client      *webhook.Client

	asking chan struct{} // full while a call checks the health; other calls wait
	sick   atomic.Bool   // the health must be checked
}

// NewHTTPProcessor returns a processor that POSTs an item's data to a URL, with the headers [HeaderItem], [HeaderPartition], [HeaderGate],
// [HeaderAttempt] and [HeaderIdempotencyKey]. The key is the same for all attempts of a step, and differs between steps. An answer with status
// 2xx has a body that [ParseResponse] can read. Any other status is a failed attempt. So are a redirect, a body over 1 MiB, a body that is not
// JSON, and a body with an error, whatever the status. A header Retry-After of a failed attempt sets the delay, and takes precedence over
// retry_after in the body. The URL may be on loopback or in a private network. Link-local addresses are refused, because clouds serve
// credentials there. Errors are [ErrInvalid].
func NewHTTPProcessor(url string, opts ...HTTPOption) (Processor, error) {
	p := &httpProcessor{url: url, timeout: defaultTimeout, asking: make(chan struct{}, 1)}
	if err := cmp.Or(checkURL("url", url), apply("HTTPOption", p, opts)); err != nil {
		return nil, err
	}
	p.client = webhook.NewClient(webhook.Policy{Any: true}, p.timeout)
	return p, nil
}

func checkURL(name, text string) error {
	err := webhook.CheckURL(text)
	return check(err == nil, name, "%v", err)
}

func (p *httpProcessor) Process(ctx context.Context, it Item) (Response, error) {
	if err := p.healthy(ctx); err != nil {
		return Response{}, err
	}
	header := http.Header(it.header())
	header["Content-Type"] = []string{"application/octet-stream"}
	traceContext.Inject(ctx, propagation.HeaderCarrier(header))
	if p.signer != nil {
		p.signer.Sign(header, it.IdempotencyKey(), time.Now(), it.Data)
	}
	answer, err := p.client.Exchange(ctx, webhook.Request{Method: http.MethodPost, URL: p.url, Header: header, Body: it.Data, Limit: maxAnswer})
	if err != nil {
		p.sick.Store(true)
		return Response{}, err
	}
	p.sick.Store(answer.Code >= http.StatusInternalServerError)
	resp, err := parseAnswer(answer)
	if after, ok := webhook.RetryAfter(answer.Header, time.Now()); ok && after > 0 { // a time in the past must not replace the backoff
		err = RetryAfter(after, err)
	}
	return resp, err
}

func parseAnswer(a *webhook.Answer) (Response, error) {
	switch {
	case a.Broken != nil:
		return Response{}, fmt.Errorf("the answer with status %d broke off: %w", a.Code, a.Broken)
	case a.Truncated:
		return Response{}, fmt.Errorf("the answer with status %d is too large: it has more than %d bytes", a.Code, maxAnswer)
	}
	text := bytes.TrimSpace(a.Body)
	resp, err := ParseResponse(text)
	success := a.Code >= 200 && a.Code <= 299
	if !success && (err == nil || errors.Is(err, errNoResponse)) {
		err = fmt.Errorf("%.*q", maxExcerpt, text)
	}
	if err != nil {
		return Response{}, fmt.Errorf("answered with status %d: %w", a.Code, err)
	}
	return resp, nil
}

// healthy waits until the handler can work.
func (p *httpProcessor) healthy(ctx context.Context) error {
	if p.health == "" || !p.sick.Load() {
		return nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for p.sick.Load() {
		answer, err := p.client.Exchange(ctx, webhook.Request{Method: http.MethodGet, URL: p.health, Timeout: min(p.timeout, healthTimeout)})
		if err == nil && answer.Code >= 200 && answer.Code <= 299 {
			p.sick.Store(false)
			return nil
		}
		if err := watch.Sleep(ctx, jitter(healthEvery)); err != nil {
			return err
		}
	}
	return nil
}
