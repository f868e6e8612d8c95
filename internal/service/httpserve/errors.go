package httpserve

import (
	"errors"
	"fmt"
	"net/http"
)

// Error is the answer to a request that failed. The texts are for clients.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Header is what the answer has beside its body.
	Header map[string]string `json:"-"`
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Refuse makes an Error.
func Refuse(status int, code, format string, args ...any) error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadRequest says what is wrong with a request.
func BadRequest(format string, args ...any) error {
	return Refuse(http.StatusBadRequest, "bad_request", format, args...)
}

// NotFound says what there is not.
func NotFound(format string, args ...any) error {
	return Refuse(http.StatusNotFound, "not_found", format, args...)
}

// The answers to a request that has no route, and to one whose handler panicked before it answered.
var (
	ErrNoRoute  = NotFound("no such route")
	ErrPanicked = Refuse(http.StatusInternalServerError, "internal", "internal error")
)

// Known is an error of a system that clients may see. Without a message they see the error's own.
type Known struct {
	Err     error
	Status  int
	Code    string
	Message string
}

// Describe finds the answer to an error, by the first of known that it is. Clients do not see other errors.
func Describe(err error, known []Known) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: fmt.Sprintf("request body is larger than %d bytes", e.Limit)}
	}
	for _, k := range known {
		if errors.Is(err, k.Err) {
			e := &Error{Status: k.Status, Code: k.Code, Message: k.Message}
			if e.Message == "" {
				e.Message = err.Error()
			}
			return e
		}
	}
	return &Error{Status: http.StatusInternalServerError, Code: "internal", Message: "internal error"}
}

// retryAfter is when to try again, in seconds, after a 503: what a process lacks then is mostly back soon.
const retryAfter = "1"

// Write answers with the error, as text or as JSON.
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
