package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/signature"
	"github.com/jetpull/jetpull/internal/service/httpserve"
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
	errMissingSignature   = refuse(http.StatusUnauthorized, "missing X-Broker-Signature header")
	errMalformedSignature = refuse(http.StatusUnauthorized, "malformed X-Broker-Signature header")
	errOldScheme          = refuse(http.StatusUnauthorized, "the X-Broker-Signature header has v1: this broker needs t=SECONDS,n=NONCE,v2=HEX")
	errStaleSignature     = refuse(http.StatusForbidden, "request timestamp outside tolerance window")
	errWrongSignature     = refuse(http.StatusForbidden, "invalid signature")
	errUsedNonce          = refuse(http.StatusForbidden, "the nonce of X-Broker-Signature was used before: sign each request anew")
	errManyNonces         = refuse(http.StatusServiceUnavailable, "too many signed requests within the tolerance of their time: try again later, or lower hmac-timestamp-tolerance-seconds")
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
		return httpserve.ReadError(err)
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
