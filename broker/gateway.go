package broker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// HeaderSignature has the signature of a request where requests must be signed.
const HeaderSignature = "X-Broker-Signature"

// Sign returns the signature of a request with a body that is sent at a time.
func (c *GatewayConfig) Sign(at time.Time, body []byte) (string, error) {
	key, err := c.Key()
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%d.", at.Unix())
	_, _ = mac.Write(body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil))), nil
}
