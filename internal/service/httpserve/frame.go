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
	// Access is Open, or one of the system's own values for who may use the route.
	Access int
	Handle Handler
	// Query lists the parameters that the route accepts. It refuses others.
	Query []string
	// AnyQuery makes the route accept all parameters, because health probes and scrapers add some.
	AnyQuery bool
}

// On returns a route that accepts only the parameters in query.
func On(method, pattern string, access int, handle Handler, query ...string) Route {
	return Route{Method: method, Pattern: pattern, Access: access, Handle: handle, Query: query}
}

// Probed returns a GET route with AnyQuery.
func Probed(pattern string, access int, handle Handler) Route {
	return Route{Method: http.MethodGet, Pattern: pattern, Access: access, Handle: handle, AnyQuery: true}
}

// Open is the access of a route that needs no token.
const Open = 0

// AdminToken is the value of System.Private for a system with these settings.
const AdminToken = "set [admin] token, and networks to public"

const (
	healthPattern  = "/healthz"
	metricsPattern = "/metrics"
)

func writeStatus(w http.ResponseWriter, status string) {
	WriteJSON(w, http.StatusOK, map[string]string{"status": status})
}

// Starting returns a handler for a system that has not started yet. /healthz reports that it is alive. All other requests get a 503 with the reason.
// The handler checks no token, so anybody can read the reason.
func Starting(text bool, reason func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == healthPattern {
			writeStatus(w, "ok")
			return
		}
		(&Error{Status: http.StatusServiceUnavailable, Code: "unavailable", Message: reason()}).Write(w, text)
	})
}

// System configures the HTTP interface of one system.
type System struct {
	Log *slog.Logger
	// OpenMetrics allows requests for /metrics without a token.
	OpenMetrics bool
	// Observe is called for each request, with the pattern of its route, the label of its method and its status. It may be nil.
	Observe func(pattern, method string, status int, took time.Duration)
	// Unguarded specifies that no admin token is set, so that requests by pages of other sites must be refused. Loopback specifies that only this
	// machine can reach the listener.
	Unguarded bool
	Loopback  bool
	// Private is advice for the case that requests come through a proxy, because then a listener on loopback is not private.
	Private string
	// Verify may refuse a request before it is routed. It may be nil.
	Verify func(r *http.Request) error
	// Redirect returns another address for a request, relative to its path, if there is one. It may be nil.
	Redirect func(r *http.Request) (to string, ok bool)
	// Check may refuse a request before its handler is called. It limits the body. It may be nil.
	Check func(w http.ResponseWriter, r *http.Request, route Route) error
	// Now returns the time for the Date header. It is set if the times in responses are not those of the process's clock.
	Now func() time.Time
	// Describe returns the response to a failed request. It hides unexpected errors.
	Describe func(err error) *Error
	// Text makes error responses text. Otherwise they are JSON.
	Text bool
	// Quiet reports whether the cause of an error with a status of 500 or more is already logged. Nil means that it is not.
	Quiet func(r *http.Request, status int) bool
}

// Frame serves the routes of a system. It is safe for concurrent use.
type Frame struct {
	System
	mux     *http.ServeMux
	proxied sync.Once // guards the warning that the listener is not private
}

// NewFrame returns the handler for the system's routes.
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
		// JSON could not represent the names in the path.
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

// Common returns the routes that each system has. Except /metrics, they need no token. document describes the system's other routes; it may be nil.
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

// serve answers a request. It returns the pattern of its route, or why it has none.
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

// redirect redirects to an address relative to the current one, so that the system need not know the path that clients see.
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

// WriteJSON writes a response with value as JSON.
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
	_, _ = w.Write(body) // an error means that the client is gone
}

// Handler answers a request, or returns an error.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Show returns a handler that responds with the result of show as JSON.
func Show(show func(*http.Request) (any, error)) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		value, err := show(r)
		if err == nil {
			WriteJSON(w, http.StatusOK, value)
		}
		return err
	}
}

// Done responds with a status and no body if err is nil. It returns err.
func Done(w http.ResponseWriter, status int, err error) error {
	if err == nil {
		w.WriteHeader(status)
	}
	return err
}

// With returns a handler that calls find for the object that a request names, and then handle with it.
func With[T any](find func(*http.Request) (T, error), handle func(http.ResponseWriter, *http.Request, T) error) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		found, err := find(r)
		if err != nil {
			return err
		}
		return handle(w, r, found)
	}
}

// ShowOf is like Show, for a function that also gets the object that a request names.
func ShowOf[T any](find func(*http.Request) (T, error), show func(*http.Request, T) (any, error)) Handler {
	return With(find, func(w http.ResponseWriter, r *http.Request, found T) error {
		return Show(func(r *http.Request) (any, error) { return show(r, found) })(w, r)
	})
}
