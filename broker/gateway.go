package broker

import (
	"net/http"
	"time"

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
