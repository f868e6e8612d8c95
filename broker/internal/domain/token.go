package domain

import (
	"crypto/sha256"
	"encoding/base32"

	"github.com/jetpull/jetpull/internal/tokens"
)

// maxTokenLen is the longest token made by escaping. A subject with two of them stays well below the server's limit for a
// protocol line.
const maxTokenLen = 200

var hashEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// SubjectToken returns an ID as one token of a subject, like [tokens.Subject]. An ID that would become too long is replaced by ==
// and its hash, an empty ID by ==.
func SubjectToken(id string) string {
	token := tokens.Subject(id)
	switch {
	case token == "":
		return "=="
	case len(token) > maxTokenLen:
		sum := sha256.Sum256([]byte(id))
		return "==" + hashEncoding.EncodeToString(sum[:])
	}
	return token
}
