package httpapi

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/signature"
)

// noncesMost bounds the nonces that are remembered, at some 50 bytes each.
const noncesMost = 1 << 20

// Gateway is what requests are signed with.
type Gateway struct {
	Key []byte
	// Scheme is that which requests must have: signature.V1, which both fulfil, or V2.
	Scheme string
	// Tolerance is how far the time of a signature may be off.
	Tolerance time.Duration
	// Exempt are fronts of paths that need no signature, beside /healthz and /readyz.
	Exempt []string
}

var (
	errMissingSignature   = &httpError{http.StatusUnauthorized, "missing X-Broker-Signature header"}
	errMalformedSignature = &httpError{http.StatusUnauthorized, "malformed X-Broker-Signature header"}
	errOldScheme          = &httpError{http.StatusUnauthorized, "the X-Broker-Signature header has v1: this broker needs t=SECONDS,n=NONCE,v2=HEX"}
	errStaleSignature     = &httpError{http.StatusForbidden, "request timestamp outside tolerance window"}
	errWrongSignature     = &httpError{http.StatusForbidden, "invalid signature"}
	errUsedNonce          = &httpError{http.StatusForbidden, "the nonce of X-Broker-Signature was used before: sign each request anew"}
	errManyNonces         = &httpError{http.StatusServiceUnavailable, "too many signed requests within the tolerance of their time: try again later, or lower hmac-timestamp-tolerance-seconds"}
)

// verifyGateway checks the signature that a gateway in front puts on requests.
// The body is read for it and put back.
func (a *API) verifyGateway(r *http.Request) error {
	g := a.opts.Gateway
	// Who asks for the health, such as Kubernetes, cannot sign.
	if g == nil || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
		return nil
	}
	for _, prefix := range g.Exempt {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return nil
		}
	}
	header := r.Header.Get(signature.Header)
	if header == "" {
		return errMissingSignature
	}
	signed, err := signature.Parse(header)
	switch {
	case err != nil:
		return errMalformedSignature
	case g.Scheme == signature.V2 && signed.Scheme != signature.V2:
		return errOldScheme
	case time.Since(signed.At).Abs() > g.Tolerance:
		return errStaleSignature
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, a.opts.MaxBody))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLarge
		}
		return &httpError{http.StatusBadRequest, "body could not be read"}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !signed.Matches(g.Key, signature.Request{Method: r.Method, Target: r.RequestURI, Body: body}) {
		return errWrongSignature
	}
	if signed.Scheme == signature.V1 {
		return nil
	}
	switch first, room := a.nonces.Use(time.Now(), signed.Nonce); {
	case !first:
		return errUsedNonce
	case !room:
		return errManyNonces
	}
	return nil
}
