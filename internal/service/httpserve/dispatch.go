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

// noRoute is the pattern of a request that has none.
const noRoute = "none"

// dispatch has mux serve a request, and returns the pattern of its route without the method. Fail answers a request that has
// no route, and one whose handler panicked before it answered. The panic is logged.
func dispatch(mux *http.ServeMux, w *recorder, r *http.Request, log *slog.Logger, fail func(error)) (pattern string) {
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

// cleanPath reports whether the mux would take a path as it is. It redirects others, which no contract knows.
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
	verdict := httptest.NewRecorder()
	h.ServeHTTP(verdict, r)
	if verdict.Code == http.StatusMethodNotAllowed {
		allow := verdict.Header().Get("Allow")
		return &Error{http.StatusMethodNotAllowed, "method_not_allowed", "allowed: " + allow, map[string]string{"Allow": allow}}
	}
	return ErrNoRoute
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	now    func() time.Time // of the header Date; nil: the process's
	status int
}

// begin sets the status, and what the header has at that time.
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

// Answered reports whether the answer has begun.
func (r *recorder) Answered() bool { return r.status != 0 }

// Status is that of the answer.
func (r *recorder) Status() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// methodLabel keeps a client's inventions out of metrics.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
		return method
	}
	return "other"
}
