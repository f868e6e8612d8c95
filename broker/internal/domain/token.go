package domain

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
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
func SameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1 && a != ""
}
