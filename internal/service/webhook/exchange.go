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

// Answer is what the other side answered, whatever its status.
type Answer struct {
	Code   int
	Header http.Header
	// Body is at most as long as the request allowed.
	Body []byte
	// Truncated says that the body was longer.
	Truncated bool
	// Broken is why the body broke off, or did not end in time; nil: it did not.
	Broken error
}

// Request is one request of [Client.Exchange].
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte
	// Timeout bounds the whole exchange; 0: the client's.
	Timeout time.Duration
	// Identity is for whom the request is made, as a path below Policy.Certificates; empty: nobody in particular.
	Identity string
	// Limit is how many bytes of the answer's body are kept; 0: none.
	Limit int
}

// ErrNotSent says that a request failed before any byte of it was written: the other side cannot have seen it.
var ErrNotSent = errors.New("the request was not sent")

// Exchange sends one request and returns the answer. Its error wraps [ErrNotSent] where the other side cannot have
// seen the request; after any other error it may have. A redirect is an answer and is not followed. An answer whose
// status arrived and whose body broke off is an answer with Broken set, unless the body was cut by the end of ctx.
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
		// The bytes that follow are no body but the connection, which the end of ctx does not close.
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

// noAnswer is the cause of a request that took that long. It is formatted when it is read, because each request has one.
type noAnswer time.Duration

func (e noAnswer) Error() string {
	return fmt.Sprintf("no answer within %s: %v", time.Duration(e), context.DeadlineExceeded)
}

func (noAnswer) Unwrap() error { return context.DeadlineExceeded }

// connectionHeaders belong to a connection, or are its proxies'.
var connectionHeaders = []string{
	"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding",
	"Upgrade",
}

// OfConnection reports whether a header, in its canonical form, belongs to the connection, so that no user can set it.
func OfConnection(name string) bool { return slices.Contains(connectionHeaders, name) }

// sentOnce is a header with which the transport repeats no request by itself, uncounted: it does so for those with a key, of
// which it does not find the name in lower case.
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

// longestRetry bounds what an answer asks for, so that it is a Duration.
const longestRetry = 365 * 24 * time.Hour

// RetryAfter reads the header Retry-After, which is seconds, here also with a fraction, or a date (RFC 9110, 10.2.3). It reports
// false where the header is missing or neither. A date that is over is 0, and more than a year is a year.
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
