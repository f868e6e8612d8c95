package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a signature, as in the Standard Webhooks specification.
const (
	HeaderPrefix    = "Webhook-" // prefix of all of them
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const secretPrefix = "whsec_"

// The specification's limits for the length of a secret, in bytes.
const (
	minSecret = 24
	maxSecret = 64
)

// ErrSecret reports that a signing secret is invalid.
var ErrSecret = errors.New("signing secret")

// Signer signs requests as Standard Webhooks specifies. Several secrets result in several signatures, so that a secret can be replaced without a gap.
type Signer struct {
	keys [][]byte
}

// NewSigner parses secrets, which are separated by spaces. Each is base64, with or without the prefix whsec_.
func NewSigner(secrets string) (*Signer, error) {
	s := &Signer{}
	for i, secret := range strings.Fields(secrets) {
		k, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
		if err != nil {
			return nil, fmt.Errorf("%w number %d is not base64: give whsec_ and base64", ErrSecret, i+1)
		}
		if len(k) < minSecret || len(k) > maxSecret {
			return nil, fmt.Errorf("%w number %d has %d bytes: give %d to %d", ErrSecret, i+1, len(k), minSecret, maxSecret)
		}
		s.keys = append(s.keys, k)
	}
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("%w is empty", ErrSecret)
	}
	return s, nil
}

// NewSecret returns a random secret in the form that NewSigner parses.
func NewSecret() string {
	k := make([]byte, 32)
	// rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(k)
	return secretPrefix + base64.StdEncoding.EncodeToString(k)
}

// Sign sets the three headers of a signature of id, time and payload.
func (s *Signer) Sign(header map[string][]string, id string, at time.Time, payload []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(s.keys))
	for i, k := range s.keys {
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(payload)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	h := http.Header(header)
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, stamp)
	h.Set(HeaderSignature, strings.Join(signatures, " "))
}
