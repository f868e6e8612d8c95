// Package webhook sends signed HTTP requests to addresses that users configure.
//
// Such a request must not reach private networks. So an address is checked when
// the connection is made, after its name was resolved, and redirects are not
// followed. The time and the size of an answer are bounded.
package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
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
	policy  Policy
	http    *http.Client // of requests without an identity of their own
	timeout time.Duration

	mu         sync.Mutex // guards identities
	identities map[string]*identity
}

// NewClient makes a client whose requests end after timeout, whatever the
// other side does. That does not bound the dial, since a [Request] may have longer.
func NewClient(policy Policy, timeout time.Duration) *Client {
	c := &Client{policy: policy, timeout: timeout, identities: map[string]*identity{}}
	c.http = c.over(nil)
	return c
}

// over makes an HTTP client with settings of TLS; nil: the defaults.
func (c *Client) over(config *tls.Config) *http.Client {
	dial := (&net.Dialer{Timeout: dialTime, Control: c.policy.control}).DialContext
	if c.policy.Proxy != nil {
		dial = tunnel{c.policy, c.policy.Proxy}.dial
	}
	return &http.Client{
		Transport: &http.Transport{
			// No Proxy: it would resolve names and dial them, unchecked.
			DialContext:            dial,
			TLSClientConfig:        config,
			MaxIdleConnsPerHost:    idlePerHost,
			IdleConnTimeout:        idleTime,
			TLSHandshakeTimeout:    dialTime,
			MaxResponseHeaderBytes: headerLimit,
			ForceAttemptHTTP2:      true,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// PostKeep sends a POST and returns the answer, if there was one, with up to the request's limit of its body. It waits for the whole answer, or
// its first 64 KiB. An answer that is not 2xx is a *StatusError, and one that breaks off is an error, too.
func (c *Client) PostKeep(ctx context.Context, r Request) (*Answer, error) {
	limit := r.Limit
	r.Method, r.Limit = http.MethodPost, max(limit, waitedLimit)
	answer, err := c.Exchange(ctx, r)
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
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.identities {
		i.mu.Lock()
		i.http.CloseIdleConnections()
		i.mu.Unlock()
	}
}
