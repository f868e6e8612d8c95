package store

import "github.com/jetpull/jetpull/internal/tokens"

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
	return tokens.ParseSubject(token)
}
