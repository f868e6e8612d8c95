package broker

import (
	"net/http"
	"time"

	"github.com/jetpull/jetpull/broker/internal/httpapi"
)

// Sign signs a request with a body that is sent now.
func (c *GatewayConfig) Sign(r *http.Request, body []byte) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	r.Header.Set(httpapi.HeaderSignature, httpapi.Sign(key, time.Now(), body))
	return nil
}
