package httpserve

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"time"
)

// noRoute is the pattern of a request without a route.
const noRoute = "none"

// dispatch serves a request with mux, and returns the pattern of its route without the method. It calls fail for a request without a route, and if
// the handler panics before it answers. It logs a panic.
func dispatch(mux *http.ServeMux, w *recorder, r *http.Request, log *slog.Logger, fail func(error)) (pattern string) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("request panicked", "path", r.URL.EscapedPath(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if w.status == 0 { // the response has not begun
				fail(ErrPanicked)
			}
		}
	}()
	if !cleanPath(r.URL.EscapedPath()) {
		fail(ErrNoRoute)
		return noRoute
	}
	h, pattern := mux.Handler(r)
	if pattern == "" {
		fail(refusal(h, r))
		return noRoute
	}
	if _, path, ok := strings.Cut(pattern, " "); ok {
		pattern = path
	}
	mux.ServeHTTP(w, r)
	return pattern
}

// cleanPath reports whether the mux would route a path as it is. It redirects other paths, which no contract documents.
func cleanPath(escaped string) bool {
	for segment := range strings.SplitSeq(strings.TrimPrefix(escaped, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// refusal returns the mux's error for a request without a route.
func refusal(h http.Handler, r *http.Request) error {
	verdict := httptest.NewRecorder()
	h.ServeHTTP(verdict, r)
	if verdict.Code == http.StatusMethodNotAllowed {
		allow := verdict.Header().Get("Allow")
		return &Error{http.StatusMethodNotAllowed, "method_not_allowed", "allowed: " + allow, map[string]string{"Allow": allow}}
	}
	return ErrNoRoute
}

// recorder records the status of a response.
type recorder struct {
	http.ResponseWriter
	now    func() time.Time // for the Date header; nil means the process's clock
	status int
}

// begin records the status, and sets the Date header.
func (r *recorder) begin(status int) {
	if r.status != 0 {
		return
	}
	if r.status = status; r.now != nil {
		r.Header().Set("Date", r.now().UTC().Format(http.TimeFormat))
	}
}

func (r *recorder) WriteHeader(code int) {
	r.begin(code)
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.begin(http.StatusOK)
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Status returns the status of the response.
func (r *recorder) Status() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// methodLabel returns the label of a method. Methods that clients invent share a label, so that they do not create series.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete:
		return method
	}
	return "other"
}
