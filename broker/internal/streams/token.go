package streams

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
)

// maxTokenLen is the longest token made by escaping. Two of them and the rest
// of a subject stay well under the server's limit for a protocol line.
const maxTokenLen = 200

const hexDigits = "0123456789ABCDEF"

var hashEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// ErrHashed says that a token is a hash, from which no ID can be had.
var ErrHashed = errors.New("the token is a hash")

// EncodeToken returns an ID as one token of a subject, which may also be part
// of a key. Letters, digits, - and _ stand for themselves, any other byte is
// written as = and two hex digits. An ID that gets too long that way is
// replaced by == and a hash of it.
func EncodeToken(id string) string {
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

// decodeToken is the inverse of encodeToken. It fails for a hashed ID.
func decodeToken(token string) (string, error) {
	if token == "==" {
		return "", nil
	}
	if strings.HasPrefix(token, "==") {
		return "", ErrHashed
	}
	if !strings.Contains(token, "=") {
		return token, nil
	}
	b := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c != '=' {
			b = append(b, c)
			continue
		}
		if i+2 >= len(token) {
			return "", fmt.Errorf("token %q ends inside an escape", token)
		}
		hi, lo := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("token %q has a bad escape at %d", token, i)
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
