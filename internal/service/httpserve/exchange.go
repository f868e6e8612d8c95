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

// Encode returns the JSON of a value for a response, with a newline. It also escapes DEL and the C1 controls, which a terminal may obey.
func Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return escapeControls(b.Bytes()), err
}

// escapeControls escapes the controls that encoding/json does not escape. In JSON, only strings can contain them.
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

// Bearer returns the bearer token of a request, or an empty string.
func Bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// EscapeID returns an ID as a segment of a path. It also escapes an ID of only dots, which clients and servers would take for a directory.
func EscapeID(id string) string {
	switch id {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(id)
}
