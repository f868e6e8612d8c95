package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/internal/mask"
)

// Answer is the response of the other side, with any status.
type Answer struct {
	Code   int
	Header http.Header
	// Body is truncated to the request's limit.
	Body []byte
	// Truncated reports whether the body was longer.
	Truncated bool
	// Broken is why the body is incomplete, or nil.
	Broken error
}

// Err returns nil for a complete response with a status of 2xx, and otherwise the reason why it is none.
func (a *Answer) Err() error {
	switch {
	case a.Code < 200 || a.Code > 299:
		return fmt.Errorf("answered with status %d: %q", a.Code, a.Body[:min(len(a.Body), excerptLimit)])
	case a.Broken != nil:
		return fmt.Errorf("answered with status %d, but the answer broke off: %w", a.Code, a.Broken)
	}
	return nil
}

// Request is a request for [Client.Exchange].
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte
	// Timeout limits the whole exchange. 0 means the client's timeout.
	Timeout time.Duration
	// Identity names the consumer or receiver for which the request is made, as a path below Policy.Certificates. It may be empty.
	Identity string
	// Limit is how many bytes of the response's body are kept. 0 means none.
	Limit int
}

// ErrNotSent reports that a request failed before any byte of it was written, so that the other side cannot have seen it.
var ErrNotSent = errors.New("the request was not sent")

// Exchange sends one request and returns the response. Its error wraps [ErrNotSent] if the other side cannot have seen the request. After any other
// error, it may have. Exchange returns a redirect and does not follow it. If the body of a response is incomplete, Exchange returns the response with
// Broken set, unless ctx ended before the body did.
func (c *Client) Exchange(ctx context.Context, r Request) (*Answer, error) {
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = c.timeout
	}
	asked := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, noAnswer(timeout))
	defer cancel()
	var written atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { written.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: make the request: %w", ErrNotSent, mask.Error(err, r.URL))
	}
	req.Header = sentOnce(r.Header)
	client, err := c.of(r.Identity)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrForbiddenAddress) {
			err = cause
		}
		err = mask.Error(err, r.URL)
		if !written.Load() {
			err = fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer := &Answer{Code: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The bytes that follow are the connection, not a body. The end of ctx does not close it.
		return answer, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(r.Limit)+1))
	if err != nil {
		if asked.Err() != nil {
			return nil, context.Cause(asked)
		}
		answer.Broken = mask.Error(err, r.URL)
	}
	if len(body) > r.Limit {
		body, answer.Truncated = body[:r.Limit], true
	}
	answer.Body = body
	return answer, nil
}

// noAnswer is the cause of a timeout after that time. Its text is formatted only when it is used, because each request has one.
type noAnswer time.Duration

func (e noAnswer) Error() string {
	return fmt.Sprintf("no answer within %s: %v", time.Duration(e), context.DeadlineExceeded)
}

func (noAnswer) Unwrap() error { return context.DeadlineExceeded }

// connectionHeaders are headers of a connection, or of its proxies.
var connectionHeaders = []string{
	"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade",
}

// OfConnection reports whether a header, in its canonical form, belongs to the connection, so that users cannot set it.
func OfConnection(name string) bool { return slices.Contains(connectionHeaders, name) }

// sentOnce returns a header with which the transport does not repeat the request, which would not be counted. The transport repeats requests with an
// idempotency key, but does not recognize its name in lower case.
func sentOnce(header http.Header) http.Header {
	header = header.Clone()
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if value, ok := header[name]; ok {
			delete(header, name)
			header[strings.ToLower(name)] = value
		}
	}
	if header == nil {
		header = http.Header{}
	}
	return header
}

// longestRetry limits the wait in a response, so that it fits into a Duration.
const longestRetry = 365 * 24 * time.Hour

// RetryAfter parses the Retry-After header: seconds, here also with a fraction, or a date (RFC 9110, 10.2.3). It returns false if the header is
// missing or invalid. It returns 0 for a date in the past, and a year for more than a year.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, longestRetry.Seconds()) * float64(time.Second)), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(0, at.Sub(now)), longestRetry), true
}
