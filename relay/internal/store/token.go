package store

import (
	"errors"
	"fmt"
	"strings"
)

const hexDigits = "0123456789ABCDEF"

// Token returns an ID as one token of a subject, which may also be part of a key. Letters, digits, - and _ stand for
// themselves, any other byte is written as = and two hex digits; the empty ID is =.
func Token(id string) string {
	if id == "" {
		return "="
	}
	extra := 0
	for i := range len(id) {
		if !plain(id[i]) {
			extra += 2
		}
	}
	if extra == 0 {
		return id
	}
	var b strings.Builder
	b.Grow(len(id) + extra)
	for i := range len(id) {
		if c := id[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// ParseToken is the inverse of [Token].
func ParseToken(token string) (string, error) {
	switch token {
	case "=":
		return "", nil
	case "":
		return "", errors.New("the token is empty")
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		switch {
		case c == '=' && i+2 < len(token):
			high, low := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
			if high < 0 || low < 0 {
				return "", fmt.Errorf("token %q: %q is not = and two hex digits", token, token[i:i+3])
			}
			b.WriteByte(byte(high<<4 | low))
			i += 2
		case plain(c):
			b.WriteByte(c)
		default:
			return "", fmt.Errorf("token %q: unexpected %q", token, c)
		}
	}
	return b.String(), nil
}
