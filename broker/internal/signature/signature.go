// Package signature is the signatures of requests to the broker: what a client writes and a broker checks.
package signature

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Header has the signature of a request.
const Header = "X-Broker-Signature"

// Schemes of signatures. V1 is the original's and covers time and body. V2 covers the method, the request target and a nonce too.
const (
	V1 = "v1"
	V2 = "v2"
)

// Request is what a signature is about.
type Request struct {
	Method string
	Target string // path and query as they are sent
	Body   []byte
}

// Signed is a signature and what it was made with.
type Signed struct {
	Scheme string
	At     time.Time // in whole seconds
	Nonce  string    // of V2
	mac    []byte
}

// New signs a request with V2 and a nonce of its own, or with V1.
func New(scheme string, key []byte, at time.Time, r Request) Signed {
	s := Signed{Scheme: scheme, At: at.Truncate(time.Second)}
	if scheme == V2 {
		s.Nonce = rand.Text()
	}
	s.mac = s.sum(key, r)
	return s
}

func (s Signed) sum(key []byte, r Request) []byte {
	mac := hmac.New(sha256.New, key)
	if s.Scheme == V1 {
		mac.Write([]byte(strconv.FormatInt(s.At.Unix(), 10) + "."))
		mac.Write(r.Body)
		return mac.Sum(nil)
	}
	// No part but the target can have a line break, and a target with one is no HTTP: the text has one reading.
	_, _ = fmt.Fprintf(mac, "v2\n%d\n%s\n%s\n%s\n%x", s.At.Unix(), s.Nonce, r.Method, r.Target, sha256.Sum256(r.Body))
	return mac.Sum(nil)
}

// Matches reports whether s signs r with key.
func (s Signed) Matches(key []byte, r Request) bool { return hmac.Equal(s.mac, s.sum(key, r)) }

// String is the header's value.
func (s Signed) String() string {
	if s.Scheme == V1 {
		return fmt.Sprintf("t=%d,v1=%x", s.At.Unix(), s.mac)
	}
	return fmt.Sprintf("t=%d,n=%s,v2=%x", s.At.Unix(), s.Nonce, s.mac)
}

// ErrMalformed says that a header is none of the two forms.
var ErrMalformed = errors.New("it is neither t=SECONDS,v1=HEX nor t=SECONDS,n=NONCE,v2=HEX")

// nonces are long enough that nobody draws one twice, and short enough to remember.
var nonces = regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`)

// Parse reads the value of a header. The parts of it may be in any order.
func Parse(header string) (Signed, error) {
	parts := map[string]string{}
	list := strings.Split(header, ",")
	for _, part := range list {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = value
	}
	s := Signed{Scheme: V1, Nonce: parts["n"]}
	known := 2
	if _, ok := parts[V2]; ok {
		s.Scheme, known = V2, 3
	}
	seconds, errAt := strconv.ParseInt(parts["t"], 10, 64)
	mac, errMAC := hex.DecodeString(parts[s.Scheme])
	switch {
	case errAt != nil, errMAC != nil, seconds < 0, seconds > 1<<40, len(list) != known, len(parts) != known, (s.Scheme == V2) != nonces.MatchString(s.Nonce):
		return Signed{}, ErrMalformed
	}
	s.At, s.mac = time.Unix(seconds, 0), mac
	return s, nil
}
