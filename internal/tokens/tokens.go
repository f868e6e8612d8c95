// Package tokens compares secrets in constant time, and encodes IDs as tokens of subjects.
package tokens

import (
	"crypto/sha256"
	"crypto/subtle"
)

// Same compares two tokens in a time that depends on neither of them. An empty token equals nothing.
func Same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1 && a != ""
}
