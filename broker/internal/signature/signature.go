// Package signature creates and parses the signatures of requests to the broker, for clients and for the broker.
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
	"sync"
	"time"
)

// Header is the name of the header that contains the signature of a request.
const Header = "X-Broker-Signature"

// Schemes of signatures. V1 is the original's scheme and covers time and body. V2 also covers the method, the request target and a nonce.
const (
	V1 = "v1"
	V2 = "v2"
)

// Request has the parts of an HTTP request that a signature covers.
type Request struct {
	Method string
	Target string // path and query as sent
	Body   []byte
}

// Signed is a signature with its parameters.
type Signed struct {
	Scheme string
	At     time.Time // in whole seconds
	Nonce  string    // of V2
	mac    []byte
}

// New signs a request with V1, or with V2 and a random nonce.
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
	// The text is unambiguous: only the target could contain a line break, and such a target is not valid HTTP.
	_, _ = fmt.Fprintf(mac, "v2\n%d\n%s\n%s\n%s\n%x", s.At.Unix(), s.Nonce, r.Method, r.Target, sha256.Sum256(r.Body))
	return mac.Sum(nil)
}

// Matches reports whether s is a signature of r with key.
func (s Signed) Matches(key []byte, r Request) bool { return hmac.Equal(s.mac, s.sum(key, r)) }

// String returns the value of the header.
func (s Signed) String() string {
	if s.Scheme == V1 {
		return fmt.Sprintf("t=%d,v1=%x", s.At.Unix(), s.mac)
	}
	return fmt.Sprintf("t=%d,n=%s,v2=%x", s.At.Unix(), s.Nonce, s.mac)
}

// ErrMalformed reports that a header has neither of the two forms.
var ErrMalformed = errors.New("it is neither t=SECONDS,v1=HEX nor t=SECONDS,n=NONCE,v2=HEX")

// A nonce must be long enough to be unique, and short enough to store.
var nonces = regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`)

// Parse parses the value of a header, whose parts may be in any order.
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
	case errAt != nil, errMAC != nil, seconds < 0, seconds > 1<<40, len(list) != known, len(parts) != known,
		(s.Scheme == V2) != nonces.MatchString(s.Nonce):
		return Signed{}, ErrMalformed
	}
	s.At, s.mac = time.Unix(seconds, 0), mac
	return s, nil
}

// Nonces remembers the nonces of requests for as long as their signatures are valid. It is safe for concurrent use.
type Nonces struct {
	window time.Duration // how long a signature is valid
	most   int

	mu          sync.Mutex
	begun       time.Time // when now was begun
	now, before map[[16]byte]struct{}
}

// NewNonces returns a memory for up to most nonces of signatures that are valid for window.
func NewNonces(window time.Duration, most int) *Nonces { return &Nonces{window: window, most: most} }

// Use reports whether this is the first use of nonce, and whether the memory has space for it.
func (n *Nonces) Use(at time.Time, nonce string) (first, fits bool) {
	sum := sha256.Sum256([]byte(nonce))
	id := [16]byte(sum[:16])
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Sub(n.begun) >= n.window {
		n.before = n.now
		if at.Sub(n.begun) >= 2*n.window {
			n.before = nil
		}
		n.begun, n.now = at, map[[16]byte]struct{}{}
	}
	_, used := n.now[id]
	if _, old := n.before[id]; used || old {
		return false, true
	}
	if len(n.now)+len(n.before) >= n.most {
		return true, false
	}
	n.now[id] = struct{}{}
	return true, true
}
