package broker

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// NewToken returns a random token of 20 characters, 120 bits.
func NewToken() string {
	var raw [15]byte
	// rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(raw[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// SameToken compares two tokens in a time that depends on neither of them. An
// empty token equals nothing.
func SameToken(a, b string) bool { return httpserve.SameToken(a, b) }
