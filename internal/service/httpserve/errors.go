package httpserve

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
)

// Error is the response to a failed request. Its texts are for clients.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Header contains additional headers of the response.
	Header map[string]string `json:"-"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Refuse returns an Error.
func Refuse(status int, code, format string, args ...any) error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequest returns an Error with status 400.
func BadRequest(format string, args ...any) error {
	return Refuse(http.StatusBadRequest, "bad_request", format, args...)
}

// NotFound returns an Error with status 404.
func NotFound(format string, args ...any) error {
	return Refuse(http.StatusNotFound, "not_found", format, args...)
}

// The responses to a request without a route, and to a request whose handler panicked before it answered.
var (
	ErrNoRoute  = NotFound("no such route")
	ErrPanicked = Refuse(http.StatusInternalServerError, "internal", "internal error")
)

// Known is an error that clients may see. If Message is empty, they see the error's own text.
type Known struct {
	Err     error
	Status  int
	Code    string
	Message string
}

// Describe returns the response to an error: that of the first element of known that matches. Clients do not see other errors.
func Describe(err error, known []Known) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: fmt.Sprintf("request body is larger than %d bytes", e.Limit)}
	}
	for _, k := range known {
		if errors.Is(err, k.Err) {
			return &Error{Status: k.Status, Code: k.Code, Message: cmp.Or(k.Message, err.Error())}
		}
	}
	return &Error{Status: http.StatusInternalServerError, Code: "internal", Message: "internal error"}
}

// retryAfter is the value of Retry-After in a 503, in seconds. Most causes of a 503 end soon.
const retryAfter = "1"

// Write writes the error as the response, as text or as JSON.
func (e *Error) Write(w http.ResponseWriter, text bool) {
	for name, value := range e.Header {
		w.Header().Set(name, value)
	}
	switch e.Status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", retryAfter)
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if text {
		write(w, e.Status, "text/plain; charset=utf-8", []byte(e.Message))
		return
	}
	WriteJSON(w, e.Status, map[string]*Error{"error": e})
}
