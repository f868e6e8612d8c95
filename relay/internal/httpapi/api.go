package httpapi

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

//go:embed openapi.json
var openAPI []byte

// maxAdminBody bounds the body of a request that is no message, if the server takes as much.
const maxAdminBody = 4 << 20

// Options say how the interface works.
type Options struct {
	// AdminToken is what routes of the administration need. Empty: nobody needs any token.
	AdminToken string
	// FailedLogins is how many wrong tokens an address may show in a minute; 0: any number.
	FailedLogins int
	// OpenMetrics lets everybody read the metrics.
	OpenMetrics bool
	// Loopback says that only this machine reaches the listener.
	Loopback bool
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
	// logins limits wrong admin tokens.
	logins *httpserve.Logins
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
	a.logins = httpserve.NewLogins(opts.FailedLogins, a.log, w.Metrics().LoginFailed)
	for _, r := range a.routes() {
		if r.pattern == "/metrics" && opts.OpenMetrics {
			r.access = open
		}
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
		{"GET", "/metrics", admin, a.metrics},
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
	if e, ok := errors.AsType[*httpserve.MethodError](err); ok {
		return &apiError{http.StatusMethodNotAllowed, "method_not_allowed", e.Error()}
	}
	if e, ok := errors.AsType[*httpserve.LoginsError](err); ok {
		return &apiError{http.StatusTooManyRequests, "too_many_logins", e.Error()}
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &apiError{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes", e.Limit)}
	}
	switch {
	case errors.Is(err, httpserve.ErrNoRoute), errors.Is(err, store.ErrNotFound):
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
	data, err := httpserve.Encode(value)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"internal error"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write(data)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	rec := &httpserve.Recorder{ResponseWriter: w}
	pattern := a.dispatch(rec, r)
	took := time.Since(begin)
	a.work.Metrics().Request(pattern, httpserve.MethodLabel(r.Method), rec.Status(), took)
	a.log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", r.Method), slog.String("path", r.URL.EscapedPath()),
		slog.Int("status", rec.Status()), slog.Duration("took", took))
}

// dispatch serves a request and returns the pattern of its route.
func (a *API) dispatch(w *httpserve.Recorder, r *http.Request) (pattern string) {
	if a.opts.AdminToken == "" {
		if err := httpserve.CheckBrowser(r, a.opts.Loopback); err != nil {
			a.fail(w, r, &apiError{http.StatusForbidden, "forbidden", err.Error()})
			return "browser"
		}
	}
	return httpserve.Dispatch(a.mux, w, r, a.log, func(err error) { a.fail(w, r, err) })
}

// serve wraps a route's handler with what all have in common.
func (a *API) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route.access != sender {
			// Those of senders have limits of their own.
			r.Body = http.MaxBytesReader(w, r.Body, int64(min(maxAdminBody, a.store.MaxPayload())))
		}
		var err error
		if !utf8.ValidString(r.URL.Path) {
			err = badRequest("the path %q is not UTF-8", r.URL.EscapedPath())
		}
		if err == nil && route.access != open {
			err = a.authorize(r, route.access)
		}
		if err == nil {
			err = checkNames(r)
		}
		if err == nil {
			err = route.handle(w, r)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	})
}

// checkNames does not find what has a longer name than anything can have. Asked for it, the store would use a subject that
// is longer than NATS takes, and lose the connection that all requests share.
func checkNames(r *http.Request) error {
	for _, segment := range []string{"source", "id", "name"} {
		if name := r.PathValue(segment); len(name) > work.MaxID && r.Method != http.MethodPut {
			return notFound("nothing has a name of %d bytes: %d are the most", len(name), work.MaxID)
		}
	}
	return nil
}

func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := describe(err)
	if e.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		a.log.Warn("request failed", "method", r.Method, "path", r.URL.EscapedPath(), "error", err)
	}
	switch e.status {
	case http.StatusMethodNotAllowed:
		if refused, ok := errors.AsType[*httpserve.MethodError](err); ok {
			w.Header().Set("Allow", refused.Allow)
		}
	case http.StatusTooManyRequests:
		if limited, ok := errors.AsType[*httpserve.LoginsError](err); ok {
			w.Header().Set("Retry-After", limited.Seconds())
		}
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, e.status, e.body())
}

// isAdmin tells whether a request may do everything.
func (a *API) isAdmin(r *http.Request) bool {
	if a.opts.AdminToken == "" {
		return httpserve.Bearer(r) == ""
	}
	return a.logins.Wait(r) == 0 && httpserve.SameToken(a.opts.AdminToken, httpserve.Bearer(r))
}

var errUnauthorized = &apiError{http.StatusUnauthorized, "unauthorized", "give a valid token as Authorization: Bearer"}

func (a *API) authorize(r *http.Request, needed access) error {
	switch {
	case a.isAdmin(r), needed == admin && a.opts.AdminToken == "":
		return nil
	case needed == sender && a.store.KnowsToken(httpserve.Bearer(r)):
		return nil
	}
	if httpserve.Bearer(r) == "" {
		return errUnauthorized
	}
	if err := a.logins.Failed(r); err != nil {
		return err
	}
	return errUnauthorized
}

// senderOf finds for which sender a request may use a source.
func (a *API) senderOf(r *http.Request, source string) (string, error) {
	if a.isAdmin(r) {
		return a.store.OwnerOf(source), nil
	}
	// Two senders may have the same prefix, and the same token.
	if name := a.store.OwnerByToken(source, httpserve.Bearer(r)); name != "" {
		return name, nil
	}
	return "", &apiError{http.StatusForbidden, "forbidden", fmt.Sprintf("source %q is not this sender's", source)}
}

func (a *API) healthy(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (a *API) ready(w http.ResponseWriter, r *http.Request) error {
	if err := a.store.Ready(r.Context()); err != nil {
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
