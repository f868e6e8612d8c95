package broker

import (
	"net/http"
	"time"

	"github.com/jetpull/jetpull/broker/internal/httpapi"
	"github.com/jetpull/jetpull/broker/internal/signature"
)

// Sign signs a request with a body that is sent now, by c.Scheme.
func (c *GatewayConfig) Sign(r *http.Request, body []byte) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	scheme := signature.V1
	if c.Scheme == signature.V2 {
		scheme = signature.V2
	}
	about := signature.Request{Method: r.Method, Target: r.URL.RequestURI(), Body: body}
	r.Header.Set(signature.Header, signature.New(scheme, key, time.Now(), about).String())
	return nil
}

// check is what requests are checked with. Nil: they need no signature.
func (c *GatewayConfig) check() (*httpapi.Gateway, error) {
	if c.Mode != "hmac" {
		return nil, nil
	}
	key, err := c.key()
	return &httpapi.Gateway{Key: key, Scheme: c.Scheme, Tolerance: c.Tolerance, Exempt: c.Exempt}, err
}
