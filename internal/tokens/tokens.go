// Package tokens compares secrets in constant time, and encodes IDs as tokens of subjects.
package tokens

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/url"
	"strings"
)

// Same reports whether two tokens are equal, in a time that depends on neither. An empty token equals none.
func Same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1 && a != ""
}

// Subject returns an ID as one token of a subject, which may also be part of a key. Letters, digits, - and _ are unchanged. Any other byte becomes =
// and two hex digits. The empty ID is "=".
func Subject(id string) string {
	if id == "" {
		return "="
	}
	plain := 0
	for plain < len(id) && isPlain(id[plain]) {
		plain++
	}
	if plain == len(id) {
		return id
	}
	var b strings.Builder
	b.WriteString(id[:plain])
	for i := plain; i < len(id); i++ {
		if isPlain(id[i]) {
			b.WriteByte(id[i])
		} else {
			_, _ = fmt.Fprintf(&b, "=%02X", id[i])
		}
	}
	return b.String()
}

// ParseSubject is the inverse of [Subject]. It refuses a token that Subject cannot return.
func ParseSubject(token string) (string, error) {
	if token == "=" {
		return "", nil
	}
	id, err := url.PathUnescape(strings.ReplaceAll(token, "=", "%"))
	if err != nil || token == "" || Subject(id) != token {
		return "", fmt.Errorf("token %q: it is not made of letters, digits, - and _, and = with two hex digits", token)
	}
	return id, nil
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}
