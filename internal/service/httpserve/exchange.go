package httpserve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Encode writes JSON as answers have it, with a line end. DEL and the C1 controls, which a terminal may obey, are escaped as the others are.
func Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return escapeControls(b.Bytes()), err
}

// escapeControls escapes the controls that encoding/json leaves as they are. Only strings have them in JSON.
func escapeControls(data []byte) []byte {
	control := func(r rune) bool { return r >= 0x7f && r <= 0x9f }
	var escaped []byte
	for {
		i := bytes.IndexFunc(data, control)
		if i < 0 {
			return append(escaped, data...)
		}
		r, size := utf8.DecodeRune(data[i:])
		escaped = fmt.Appendf(append(escaped, data[:i]...), `\u%04x`, r)
		data = data[i+size:]
	}
}

// Bearer is the token of the header Authorization; empty: there is none.
func Bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// EscapeID writes an ID as a segment of a path. Dots alone are escaped too: clients and servers would take them for
// directories.
func EscapeID(id string) string {
	switch id {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(id)
}
