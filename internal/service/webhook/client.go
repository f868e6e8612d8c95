package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// waitedLimit is how much of an answer PostKeep waits for. A longer one costs the connection.
	waitedLimit = 64 << 10
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

// PostKeep sends one request and returns the answer, if there was one, with up to limit bytes of its body. It waits for the whole answer, or
// its first 64 KiB. An answer that is not 2xx is a *StatusError, and one that breaks off is an error, too.
func (c *Client) PostKeep(ctx context.Context, target string, header http.Header, payload []byte, limit int) (*Answer, error) {
	answer, err := c.Exchange(ctx, Request{Method: http.MethodPost, URL: target, Header: header, Body: payload, Limit: max(limit, waitedLimit)})
	if err != nil {
		return nil, err
	}
	if len(answer.Body) > limit {
		answer.Body, answer.Truncated = answer.Body[:limit], true
	}
	switch {
	case answer.Code < 200 || answer.Code > 299:
		return answer, &StatusError{Code: answer.Code, Excerpt: string(answer.Body[:min(len(answer.Body), excerptLimit)])}
	case answer.Broken != nil:
		return answer, fmt.Errorf("answered with status %d, but the answer broke off: %w", answer.Code, answer.Broken)
	}
	return answer, nil
}

// Close gives up the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
