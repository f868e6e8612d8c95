// Package webhook sends signed HTTP requests to addresses that users configure.
//
// Such a request must not reach private networks. So the address is checked when the connection is made, after the name has been resolved, and
// redirects are not followed. The time and the size of a response are limited.
package webhook

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// ReusableLimit is a [Request.Limit] for callers that keep little of a response. After a longer response, the connection cannot be reused.
	ReusableLimit = 64 << 10
	// excerptLimit is how much of a response describes an error.
	excerptLimit = 256
	// headerLimit is the maximum size of the headers of a response.
	headerLimit = 64 << 10
	idlePerHost = 256
	idleTime    = 60 * time.Second
	dialTime    = 10 * time.Second
	// pingAfter is how long an HTTP/2 connection may be silent before it is pinged. pingTime is how long to wait for the answer. Without pings,
	// requests on a dead connection fail until the kernel gives it up after a quarter of an hour.
	pingAfter = 10 * time.Second
	pingTime  = 5 * time.Second
)

// Client posts to addresses that a policy allows. It is safe for concurrent use.
type Client struct {
	policy  Policy
	http    *http.Client // for requests without an identity
	timeout time.Duration

	mu         sync.Mutex // guards identities
	identities map[string]*identity
}

// NewClient returns a client whose requests end after timeout, whatever the other side does. timeout does not limit dials, because a [Request] may
// have a longer one.
func NewClient(policy Policy, timeout time.Duration) *Client {
	c := &Client{policy: policy, timeout: timeout, identities: map[string]*identity{}}
	c.http = c.over(nil)
	return c
}

// over returns an HTTP client with the given TLS settings. nil means the defaults.
func (c *Client) over(config *tls.Config) *http.Client {
	dial := (&net.Dialer{Timeout: dialTime, Control: c.policy.control}).DialContext
	if c.policy.Proxy != nil {
		dial = tunnel{c.policy, c.policy.Proxy}.dial
	}
	return &http.Client{
		Transport: &http.Transport{
			// Proxy is not set, because it would resolve names and dial them unchecked.
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

// Close closes idle connections.
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
