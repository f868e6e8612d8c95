package store

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/jetpull/jetpull/internal/tokens"
)

// Token encodes an ID as one token of a subject, as [tokens.Subject] does. The empty ID is "=".
func Token(id string) string {
	if id == "" {
		return "="
	}
	return tokens.Subject(id)
}

// ParseToken is the inverse of [Token].
func ParseToken(token string) (string, error) {
	if token == "=" {
		return "", nil
	}
	id, err := url.PathUnescape(strings.ReplaceAll(token, "=", "%"))
	if err != nil || token == "" || Token(id) != token {
		return "", fmt.Errorf("token %q: it is not made of letters, digits, - and _, and = with two hex digits", token)
	}
	return id, nil
}
