package domain

import (
	"crypto/sha256"
	"encoding/base32"

	"github.com/jetpull/jetpull/internal/tokens"
)

// maxTokenLen is the longest token made by escaping. Two of them and the rest
// of a subject stay well under the server's limit for a protocol line.
const maxTokenLen = 200

var hashEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// SubjectToken returns an ID as one token of a subject, as [tokens.Subject] does. An ID that gets too long that way is replaced by == and a
// hash of it, and the empty one by ==.
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
