package domain

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// maxTokenLen is the longest token made by escaping. Two of them and the rest
// of a subject stay well under the server's limit for a protocol line.
const maxTokenLen = 200

const hexDigits = "0123456789ABCDEF"

var hashEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// SubjectToken returns an ID as one token of a subject, which may also be part
// of a key. Letters, digits, - and _ stand for themselves, any other byte is
// written as = and two hex digits. An ID that gets too long that way is
// replaced by == and a hash of it.
func SubjectToken(id string) string {
	extra := 0
	for i := range len(id) {
		if !plain(id[i]) {
			extra += 2
		}
	}
	if extra == 0 && len(id) <= maxTokenLen && id != "" {
		return id
	}
	if len(id)+extra > maxTokenLen {
		sum := sha256.Sum256([]byte(id))
		return "==" + hashEncoding.EncodeToString(sum[:])
	}
	if id == "" {
		return "=="
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
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
