package httpapi

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// HeaderSignature has the signature of a request where requests must be signed.
const HeaderSignature = "X-Broker-Signature"

// Sign is the signature of a request with a body that is sent at a time.
func Sign(key []byte, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

var (
	errMissingSignature   = &httpError{http.StatusUnauthorized, "missing X-Broker-Signature header"}
	errMalformedSignature = &httpError{http.StatusUnauthorized, "malformed X-Broker-Signature header"}
	errStaleSignature     = &httpError{http.StatusForbidden, "request timestamp outside tolerance window"}
	errWrongSignature     = &httpError{http.StatusForbidden, "invalid signature"}
)

// verifyGateway checks the signature that a gateway in front puts on requests.
// The body is read for it and put back.
func (a *API) verifyGateway(r *http.Request) error {
	// Who asks for the health, such as Kubernetes, cannot sign.
	if a.opts.Gateway == nil || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
		return nil
	}
	for _, prefix := range a.opts.Gateway.Exempt {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return nil
		}
	}
	header := r.Header.Get(HeaderSignature)
	if header == "" {
		return errMissingSignature
	}
	at, signature, err := parseSignature(header)
	if err != nil {
		return err
	}
	if d := time.Since(time.Unix(at, 0)); d.Abs() > a.opts.Gateway.Tolerance {
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
	want := Sign(a.opts.Gateway.Key, time.Unix(at, 0), body)
	if !constantTimeEqual([]byte(want), fmt.Appendf(nil, "t=%d,v1=%s", at, signature)) {
		return errWrongSignature
	}
	return nil
}

// parseSignature reads t=<unix>,v1=<hex>, in any order.
func parseSignature(header string) (at int64, signature string, err error) {
	first, second, ok := strings.Cut(header, ",")
	if !ok {
		return 0, "", errMalformedSignature
	}
	stamp, ok1 := strings.CutPrefix(strings.TrimSpace(first), "t=")
	signature, ok2 := strings.CutPrefix(strings.TrimSpace(second), "v1=")
	if !ok1 && !ok2 {
		stamp, ok1 = strings.CutPrefix(strings.TrimSpace(second), "t=")
		signature, ok2 = strings.CutPrefix(strings.TrimSpace(first), "v1=")
	}
	at, err = strconv.ParseInt(stamp, 10, 64)
	if !ok1 || !ok2 || err != nil || at < 0 || at > 1<<40 {
		return 0, "", errMalformedSignature
	}
	return at, signature, nil
}
