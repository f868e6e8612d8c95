package httpserve

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
)

// What Dispatch has to say of a request that no handler has answered.
var (
	ErrNoRoute  = errors.New("no such route")
	ErrPanicked = errors.New("the handler panicked")
)

// MethodError says that a route has other methods.
type MethodError struct {
	// Allow is the header of that name.
	Allow string
}

// Error names the methods that are allowed.
func (e *MethodError) Error() string { return "allowed: " + e.Allow }

// NoRoute is the pattern of a request that has none.
const NoRoute = "none"

// Dispatch has mux serve a request, and returns the pattern of its route without the method. Fail answers a request that has
// no route, and one whose handler panicked before it answered, with one of the errors of this package. The panic is logged.
func Dispatch(mux *http.ServeMux, w *Recorder, r *http.Request, log *slog.Logger, fail func(error)) (pattern string) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("request panicked", "path", r.URL.EscapedPath(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if !w.Answered() {
				fail(ErrPanicked)
			}
		}
	}()
	if !cleanPath(r.URL.EscapedPath()) {
		fail(ErrNoRoute)
		return NoRoute
	}
	h, pattern := mux.Handler(r)
	if pattern == "" {
		fail(refusal(h, r))
		return NoRoute
	}
	if _, path, ok := strings.Cut(pattern, " "); ok {
		pattern = path
	}
	mux.ServeHTTP(w, r)
	return pattern
}

// cleanPath tells whether the mux would take a path as it is. It redirects others, which no contract knows.
func cleanPath(escaped string) bool {
	for segment := range strings.SplitSeq(strings.TrimPrefix(escaped, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// refusal is the mux's verdict on a request that has no route.
func refusal(h http.Handler, r *http.Request) error {
	verdict := &verdictWriter{header: http.Header{}}
	h.ServeHTTP(verdict, r)
	if verdict.status == http.StatusMethodNotAllowed {
		return &MethodError{verdict.header.Get("Allow")}
	}
	return ErrNoRoute
}

// verdictWriter takes an answer that is not sent.
type verdictWriter struct {
	header http.Header
	status int
}

func (v *verdictWriter) Header() http.Header         { return v.header }
func (v *verdictWriter) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdictWriter) WriteHeader(code int)        { v.status = code }

// Recorder remembers the status of an answer.
type Recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(code int) {
	if r.status == 0 {
		r.status = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the connection.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Answered tells whether the answer has begun.
func (r *Recorder) Answered() bool { return r.status != 0 }

// Status is that of the answer.
func (r *Recorder) Status() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// MethodLabel keeps a client's inventions out of metrics.
func MethodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
		return method
	}
	return "other"
}
