package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

//go:embed openapi.json
var openAPI []byte

// maxAdminBody bounds the body of a request that is no message.
const maxAdminBody = 4 << 20

// Options say how the interface works.
type Options struct {
	// AdminToken is what routes of the administration need. Empty: nobody needs any token.
	AdminToken string
	// MaxBody is the largest body of a message, in bytes.
	MaxBody int
	Logger  *slog.Logger
	// Stopping is closed when waits are to end.
	Stopping <-chan struct{}
}

// API serves the routes.
type API struct {
	store *store.Store
	work  *work.Workers
	opts  Options
	log   *slog.Logger
	mux   *http.ServeMux
}

type access int

const (
	open   access = iota // everybody
	admin                // who has the admin token
	sender               // who has a sender's token, or the admin token
)

type route struct {
	method, pattern string
	access          access
	handle          func(w http.ResponseWriter, r *http.Request) error
}

// New makes the handler.
func New(s *store.Store, w *work.Workers, opts Options) *API {
	a := &API{store: s, work: w, opts: opts, log: opts.Logger, mux: http.NewServeMux()}
	for _, r := range a.routes() {
		a.mux.Handle(r.method+" "+r.pattern, a.serve(r))
	}
	return a
}

func (a *API) routes() []route {
	return []route{
		{"GET", "/v1/receivers", admin, a.listReceivers},
		{"GET", "/v1/receivers/{name}", admin, a.getReceiver},
		{"PUT", "/v1/receivers/{name}", admin, a.putReceiver},
		{"DELETE", "/v1/receivers/{name}", admin, a.deleteReceiver},
		{"GET", "/v1/senders", admin, a.listSenders},
		{"GET", "/v1/senders/{name}", admin, a.getSender},
		{"PUT", "/v1/senders/{name}", admin, a.putSender},
		{"DELETE", "/v1/senders/{name}", admin, a.deleteSender},

		{"POST", "/v1/messages", sender, a.postMessage},
		{"POST", "/v1/messages:batch", sender, a.postBatch},
		{"GET", "/v1/messages/{source}/{id}", sender, a.getMessage},
		{"GET", "/v1/messages/{source}/{id}/response", sender, a.getResponse},

		{"GET", "/v1/failed", admin, a.listFailed},
		{"POST", "/v1/failed:redrive", admin, a.operate(store.Redrive)},
		{"POST", "/v1/failed:skip", admin, a.operate(store.Skip)},
		{"POST", "/v1/failed:purge", admin, a.operate(store.Purge)},
		{"GET", "/v1/operations/{id}", admin, a.getOperation},
		{"DELETE", "/v1/operations/{id}", admin, a.cancelOperation},

		{"GET", "/healthz", open, a.healthy},
		{"GET", "/readyz", open, a.ready},
		{"GET", "/metrics", open, a.metrics},
		{"GET", "/openapi.json", open, a.document},
	}
}

// apiError is an answer that is no success.
type apiError struct {
	status  int
	code    string
	message string
}

func (e *apiError) Error() string { return e.message }

func badRequest(format string, args ...any) error {
	return &apiError{http.StatusBadRequest, "bad_request", fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &apiError{http.StatusNotFound, "not_found", fmt.Sprintf(format, args...)}
}

// describe makes an answer of an error. What is not expected is not told to a client.
func describe(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &apiError{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes", e.Limit)}
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &apiError{http.StatusNotFound, "not_found", err.Error()}
	case errors.Is(err, store.ErrConflict):
		return &apiError{http.StatusConflict, "conflict", "it was changed meanwhile, try again"}
	case errors.Is(err, store.ErrUnavailable):
		return &apiError{http.StatusServiceUnavailable, "unavailable", "the store is not available, try again"}
	}
	return &apiError{http.StatusInternalServerError, "internal", "internal error"}
}

type errorBody struct {
	Error errorText `json:"error"`
}

type errorText struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *apiError) body() errorBody { return errorBody{errorText{e.code, e.message}} }

func writeJSON(w http.ResponseWriter, status int, value any) {
	data, err := encode(value)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"internal error"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write(data)
}

func encode(value any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	rec := &recorder{ResponseWriter: w}
	pattern := a.dispatch(rec, r)
	took := time.Since(begin)
	a.work.Metrics().Request(pattern, methodLabel(r.Method), rec.code(), took)
	a.log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", r.Method), slog.String("path", r.URL.EscapedPath()),
		slog.Int("status", rec.code()), slog.Duration("took", took))
}

// methodLabel keeps a client's inventions out of the metrics.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
		return method
	}
	return "other"
}

// dispatch serves a request and returns the pattern of its route.
func (a *API) dispatch(w *recorder, r *http.Request) (pattern string) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("request panicked", "path", r.URL.EscapedPath(), "panic", p, "stack", string(debug.Stack()))
			if w.status == 0 {
				a.fail(w, r, errors.New("panic"))
			}
		}
	}()
	if !cleanPath(r.URL.EscapedPath()) {
		a.fail(w, r, notFound("no such route"))
		return "none"
	}
	h, pattern := a.mux.Handler(r)
	if pattern == "" {
		a.noRoute(w, r, h)
		return "none"
	}
	a.mux.ServeHTTP(w, r)
	_, path, _ := strings.Cut(pattern, " ")
	return path
}

// cleanPath tells whether the mux would take a path as it is. It redirects others, which the contract does not know.
func cleanPath(escaped string) bool {
	for segment := range strings.SplitSeq(strings.TrimPrefix(escaped, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// noRoute answers with the mux's verdict, in the form of the contract.
func (a *API) noRoute(w http.ResponseWriter, r *http.Request, h http.Handler) {
	verdict := &verdictWriter{header: http.Header{}}
	h.ServeHTTP(verdict, r)
	if verdict.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", verdict.header.Get("Allow"))
		a.fail(w, r, &apiError{http.StatusMethodNotAllowed, "method_not_allowed", "allowed: " + verdict.header.Get("Allow")})
		return
	}
	a.fail(w, r, notFound("no such route"))
}

// serve wraps a route's handler with what all have in common.
func (a *API) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route.access != sender {
			// Those of senders have limits of their own.
			r.Body = http.MaxBytesReader(w, r.Body, maxAdminBody)
		}
		var err error
		if !utf8.ValidString(r.URL.Path) {
			err = badRequest("the path %q is not UTF-8", r.URL.EscapedPath())
		}
		if err == nil && route.access != open {
			err = a.authorize(r, route.access)
		}
		if err == nil {
			err = route.handle(w, r)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	})
}

func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := describe(err)
	if e.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		a.log.Warn("request failed", "method", r.Method, "path", r.URL.EscapedPath(), "error", err)
	}
	switch e.status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, e.status, e.body())
}

func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// sameToken compares in a time that says nothing of either.
func sameToken(want, got string) bool {
	w, g := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return want != "" && subtle.ConstantTimeCompare(w[:], g[:]) == 1
}

// isAdmin tells whether a request may do everything.
func (a *API) isAdmin(r *http.Request) bool {
	if a.opts.AdminToken == "" {
		return bearer(r) == ""
	}
	return sameToken(a.opts.AdminToken, bearer(r))
}

var errUnauthorized = &apiError{http.StatusUnauthorized, "unauthorized", "give a valid token as Authorization: Bearer"}

func (a *API) authorize(r *http.Request, needed access) error {
	switch {
	case a.isAdmin(r), needed == admin && a.opts.AdminToken == "":
		return nil
	case needed == sender && len(a.sendersOf(r)) > 0:
		return nil
	}
	return errUnauthorized
}

// sendersOf are the senders whose token a request has.
func (a *API) sendersOf(r *http.Request) []store.Sender {
	token := bearer(r)
	var found []store.Sender
	for _, s := range a.store.Senders() {
		if !s.Deleted && sameToken(s.Token, token) {
			found = append(found, s)
		}
	}
	return found
}

// senderOf finds for which sender a request may use a source.
func (a *API) senderOf(r *http.Request, source string) (string, error) {
	if a.isAdmin(r) {
		s, _ := a.store.SenderOf(source)
		return s.Name, nil
	}
	name, longest := "", -1
	for _, s := range a.sendersOf(r) {
		if n := s.Owns(source); n > longest {
			name, longest = s.Name, n
		}
	}
	if longest < 0 {
		return "", &apiError{http.StatusForbidden, "forbidden", fmt.Sprintf("source %q is not this sender's", source)}
	}
	return name, nil
}

func (a *API) healthy(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (a *API) ready(w http.ResponseWriter, _ *http.Request) error {
	if err := a.store.Ready(); err != nil {
		return err
	}
	select {
	case <-a.opts.Stopping:
		return fmt.Errorf("%w: shutting down", store.ErrUnavailable)
	default:
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

func (a *API) metrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(a.work.Metrics().Registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

func (a *API) document(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
	return nil
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(code int) {
	if r.status == 0 {
		r.status = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// verdictWriter takes an answer that is not sent.
type verdictWriter struct {
	header http.Header
	status int
}

func (v *verdictWriter) Header() http.Header         { return v.header }
func (v *verdictWriter) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdictWriter) WriteHeader(code int)        { v.status = code }
