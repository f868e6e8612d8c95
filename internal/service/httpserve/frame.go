package httpserve

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"
)

// Route is an operation of a system's contract.
type Route struct {
	Method  string
	Pattern string
	// Access is Open, or says in the system's own terms who may use it.
	Access int
	Handle Handler
	// Query are the parameters that the route knows; it refuses others.
	Query []string
	// AnyQuery has it take every parameter, because health probes and scrapers add some.
	AnyQuery bool
}

// On makes a route that refuses parameters other than those of query.
func On(method, pattern string, access int, handle Handler, query ...string) Route {
	return Route{Method: method, Pattern: pattern, Access: access, Handle: handle, Query: query}
}

// Probed makes a route with AnyQuery.
func Probed(pattern string, access int, handle Handler) Route {
	return Route{Method: http.MethodGet, Pattern: pattern, Access: access, Handle: handle, AnyQuery: true}
}

// Open is the access of a route that everybody may use.
const Open = 0

// AdminToken is Private of a system that has these settings.
const AdminToken = "set [admin] token, and networks to public"

const (
	healthPattern  = "/healthz"
	metricsPattern = "/metrics"
)

func writeStatus(w http.ResponseWriter, status string) {
	WriteJSON(w, http.StatusOK, map[string]string{"status": status})
}

// Starting answers for a system that has not started yet: it is alive, and 503 says of all else why it cannot serve. It looks at no
// token, so that reason is for everybody.
func Starting(text bool, reason func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == healthPattern {
			writeStatus(w, "ok")
			return
		}
		(&Error{Status: http.StatusServiceUnavailable, Code: "unavailable", Message: reason()}).Write(w, text)
	})
}

// System is what the HTTP interface of one system adds to what all have in common.
type System struct {
	Log *slog.Logger
	// OpenMetrics lets everybody read /metrics.
	OpenMetrics bool
	// Observe gets each request, with the pattern of its route, its method's label and its status. Nil: nobody does.
	Observe func(pattern, method string, status int, took time.Duration)
	// Unguarded says that no admin token is set, so that pages of other sites must be refused, and Loopback that only this machine
	// reaches the listener.
	Unguarded bool
	Loopback  bool
	// Private is what to do if requests come through a proxy, so that a listener on loopback is not private.
	Private string
	// Verify refuses a request before its route is looked for. Nil: it refuses none.
	Verify func(r *http.Request) error
	// Redirect is where else a request belongs, relative to its path. Nil: none does.
	Redirect func(r *http.Request) (to string, ok bool)
	// Check refuses a request before its route's handler sees it. It bounds the body. Nil: it refuses none.
	Check func(w http.ResponseWriter, r *http.Request, route Route) error
	// Now is the time of the header Date, if times in answers are by another clock than the process's. Nil: they are not.
	Now func() time.Time
	// Describe is the answer to a request that failed. It hides errors that are not expected.
	Describe func(err error) *Error
	// Text says that the answer is text. Otherwise it is JSON.
	Text bool
	// Quiet reports of an error with a status of 500 or more whether the log has said so already. Nil: it has not.
	Quiet func(r *http.Request, status int) bool
}

// Frame serves the routes of a system. It may be used by several goroutines.
type Frame struct {
	System
	mux     *http.ServeMux
	proxied sync.Once // the warning that the listener is not private
}

// NewFrame makes the handler of the system's routes.
func NewFrame(s System, routes []Route) *Frame {
	f := &Frame{System: s, mux: http.NewServeMux()}
	for _, route := range routes {
		if route.Pattern == metricsPattern && s.OpenMetrics {
			route.Access = Open
		}
		f.mux.HandleFunc(route.Method+" "+route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f.handle(w, r, route); err != nil {
				f.fail(w, r, err)
			}
		})
	}
	return f
}

func (f *Frame) handle(w http.ResponseWriter, r *http.Request, route Route) error {
	if !utf8.ValidString(r.URL.Path) {
		// Its names could not be shown again in JSON.
		return BadRequest("Bad Request: the path %q is not UTF-8", r.URL.EscapedPath())
	}
	if f.Check != nil {
		if err := f.Check(w, r, route); err != nil {
			return err
		}
	}
	if err := checkQuery(r, route); err != nil {
		return err
	}
	return route.Handle(w, r)
}

// Common are the routes that each system has. They may be used by everybody, except /metrics. Document describes the others; nil: there
// are none.
func Common(metricsAccess int, metrics http.Handler, document []byte, ready Handler) []Route {
	routes := []Route{
		Probed(healthPattern, Open, func(w http.ResponseWriter, _ *http.Request) error {
			writeStatus(w, "ok")
			return nil
		}),
		Probed("/readyz", Open, func(w http.ResponseWriter, r *http.Request) error {
			if err := ready(w, r); err != nil {
				return err
			}
			writeStatus(w, "ready")
			return nil
		}),
		Probed(metricsPattern, metricsAccess, func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		}),
	}
	if document == nil {
		return routes
	}
	return append(routes, Probed("/openapi.json", Open, func(w http.ResponseWriter, r *http.Request) error {
		write(w, http.StatusOK, "application/json", describeBase(r, document))
		return nil
	}))
}

// Routed reports whether a path has a route.
func (f *Frame) Routed(r *http.Request) bool {
	_, pattern := f.mux.Handler(r)
	return pattern != ""
}

// ServeHTTP implements http.Handler.
func (f *Frame) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	if f.Loopback && proxied(r.Header) {
		f.proxied.Do(func() {
			f.Log.Warn("a request came through a proxy: a listener on loopback is not private then", "advice", f.Private)
		})
	}
	rec := &recorder{ResponseWriter: w, now: f.Now}
	pattern := f.serve(rec, r)
	took := time.Since(begin)
	if f.Observe != nil {
		f.Observe(pattern, methodLabel(r.Method), rec.Status(), took)
	}
	f.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", append(requestID(w), slog.String("method", r.Method),
		slog.String("path", r.URL.EscapedPath()), slog.Int("status", rec.Status()), slog.Duration("took", took))...)
}

func requestID(w http.ResponseWriter) []slog.Attr {
	if id := w.Header().Get("X-Request-ID"); id != "" {
		return []slog.Attr{slog.String("requestId", id)}
	}
	return nil
}

// serve answers a request and returns the pattern of its route, or the reason why it has none.
func (f *Frame) serve(w *recorder, r *http.Request) (pattern string) {
	r = Within(r, f.Routed)
	if f.Verify != nil {
		if err := f.Verify(r); err != nil {
			f.fail(w, r, err)
			return "gateway"
		}
	}
	if f.Unguarded {
		if err := checkBrowser(r, f.Loopback); err != nil {
			f.fail(w, r, err)
			return "browser"
		}
	}
	if f.Redirect != nil {
		if to, ok := f.Redirect(r); ok {
			code := http.StatusPermanentRedirect
			if r.Method == http.MethodGet {
				code = http.StatusMovedPermanently
			}
			redirect(w, code, to)
			return "redirect"
		}
	}
	return dispatch(f.mux, w, r, f.Log, func(err error) { f.fail(w, r, err) })
}

// redirect leads to an address that is relative to the present one: the system need not know the path under which clients see it.
func redirect(w http.ResponseWriter, status int, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(status)
}

func (f *Frame) fail(w http.ResponseWriter, r *http.Request, err error) {
	failure := f.Describe(err)
	if failure.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		level := slog.LevelWarn
		if f.Quiet != nil && f.Quiet(r, failure.Status) {
			level = slog.LevelDebug
		}
		f.Log.LogAttrs(r.Context(), level, "request failed", append(requestID(w), slog.String("method", r.Method),
			slog.String("path", r.URL.EscapedPath()), slog.Any("error", err))...)
	}
	failure.Write(w, f.Text)
}

// WriteJSON answers with a value as JSON.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	data, err := Encode(value)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"internal error"}}`)
	}
	write(w, status, "application/json", data)
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone: nobody is left to hear of it
}

// Handler answers a request, or returns what went wrong.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Show makes a handler of a function that returns what is shown as JSON.
func Show(show func(*http.Request) (any, error)) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		value, err := show(r)
		if err == nil {
			WriteJSON(w, http.StatusOK, value)
		}
		return err
	}
}

// Done answers with a status and no body, unless there is an error, which it returns.
func Done(w http.ResponseWriter, status int, err error) error {
	if err == nil {
		w.WriteHeader(status)
	}
	return err
}

// With makes a handler of one that gets what a request names, once that is found.
func With[T any](find func(*http.Request) (T, error), handle func(http.ResponseWriter, *http.Request, T) error) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		found, err := find(r)
		if err != nil {
			return err
		}
		return handle(w, r, found)
	}
}

// ShowOf is Show of what a request names.
func ShowOf[T any](find func(*http.Request) (T, error), show func(*http.Request, T) (any, error)) Handler {
	return With(find, func(w http.ResponseWriter, r *http.Request, found T) error {
		return Show(func(r *http.Request) (any, error) { return show(r, found) })(w, r)
	})
}
