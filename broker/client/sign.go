package client

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jetpull/jetpull/broker/internal/signature"
)

// Signing returns a transport that signs each request for a broker with [gateway-auth] mode=hmac and passes it on to next. The
// signature is valid for the schemes v1 and v2. A nil next means http.DefaultTransport. The secret is the broker's
// hmac-shared-secret, in base64. Give the transport to New:
//
//	transport, err := client.Signing(secret, nil)
//	c := client.New("http://127.0.0.1:8080", &http.Client{Transport: transport})
func Signing(secret string, next http.RoundTripper) (http.RoundTripper, error) {
	key, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return nil, fmt.Errorf("the secret of signatures is not base64: %w", err)
	}
	if len(key) == 0 {
		return nil, errors.New("the secret of signatures is empty: give the broker's hmac-shared-secret")
	}
	return &signing{key, cmp.Or(next, http.DefaultTransport)}, nil
}

type signing struct {
	key  []byte
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper, which must not change the request it is given.
func (s *signing) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, fmt.Errorf("read the body to sign it: %w", err)
		}
	}
	signed := r.Clone(r.Context())
	if r.Body != nil {
		signed.Body = io.NopCloser(bytes.NewReader(body))
	}
	about := signature.Request{Method: r.Method, Target: r.URL.RequestURI(), Body: body}
	signed.Header.Set(signature.Header, signature.New(signature.V2, s.key, time.Now(), about).String())
	return s.next.RoundTrip(signed)
}
