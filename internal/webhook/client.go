package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/jetpull/jetpull/internal/mask"
)

const (
	// drainLimit is how much of an answer is read to reuse the connection.
	drainLimit = 64 << 10
	// drainTime bounds the wait for it.
	drainTime = time.Second
	// excerptLimit is how much of an answer is kept to tell what went wrong.
	excerptLimit = 256
	// headerLimit bounds the headers of an answer.
	headerLimit = 64 << 10
	idlePerHost = 256
	idleTime    = 60 * time.Second
	dialTime    = 10 * time.Second
	// pingAfter is how long an HTTP/2 connection is silent before it is asked for a sign of life, and pingTime how long that
	// is waited for. Without it a connection that died unnoticed fails requests until the kernel gives it up, a quarter of an hour.
	pingAfter = 10 * time.Second
	pingTime  = 5 * time.Second
)

// StatusError says that a request was answered, but not with success.
type StatusError struct {
	Code    int
	Excerpt string // the start of the answer's body
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("answered with status %d: %q", e.Code, e.Excerpt)
}

// Client posts to addresses that a policy allows. It may be used by several
// goroutines.
type Client struct {
	http    *http.Client
	timeout time.Duration
}

// NewClient makes a client whose requests end after timeout, whatever the
// other side does. That does not bound the dial, since a [Request] may have longer.
func NewClient(policy Policy, timeout time.Duration) *Client {
	dialer := &net.Dialer{Timeout: dialTime, Control: policy.control}
	return &Client{
		timeout: timeout,
		http: &http.Client{
			Transport: &http.Transport{
				// No Proxy: a proxy would do the dialling, unchecked.
				DialContext:            dialer.DialContext,
				MaxIdleConnsPerHost:    idlePerHost,
				IdleConnTimeout:        idleTime,
				TLSHandshakeTimeout:    dialTime,
				MaxResponseHeaderBytes: headerLimit,
				ForceAttemptHTTP2:      true,
				HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
				DisableCompression:     true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// PostKeep sends one request and returns the answer, if there was one, with up to limit bytes of its body. An answer that is not 2xx is
// a *StatusError.
func (c *Client) PostKeep(ctx context.Context, target string, header http.Header, payload []byte, limit int) (*Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s: %w", c.timeout, context.DeadlineExceeded))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", mask.Error(err, target))
	}
	req.Header = sentOnce(header)
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrForbiddenAddress) {
			return nil, cause
		}
		return nil, mask.Error(err, target)
	}
	defer func() { _ = resp.Body.Close() }()
	answer := &Answer{Code: resp.StatusCode, Header: resp.Header, Body: finish(resp.Body, limit)}
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return answer, nil
	}
	return answer, &StatusError{Code: resp.StatusCode, Excerpt: string(answer.Body[:min(len(answer.Body), excerptLimit)])}
}

// finish reads a little of a body and closes it. A short one leaves its
// connection for the next request; a long or slow one costs the connection.
func finish(body io.ReadCloser, limit int) (start []byte) {
	timer := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer timer.Stop()
	// An error while the rest is read does not change the answer.
	if body != http.NoBody {
		start, _ = io.ReadAll(io.LimitReader(body, int64(limit)))
	}
	_, _ = io.CopyN(io.Discard, body, drainLimit)
	_ = body.Close()
	return start
}

// Close gives up the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
