package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/signature"
	"github.com/jetpull/jetpull/broker/internal/work"

	_ "embed"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jetpull/jetpull/internal/service/httpserve"
)

//go:embed openapi.json
var openAPI []byte

// handler answers a request, or returns what went wrong.
type handler func(w http.ResponseWriter, r *http.Request) error

// access says what a route asks for beside the tokens that it checks itself.
type access int

const (
	open    access = iota // nothing
	admin                 // the admin token, if there is one
	reads                 // that, or an access token of the channel with the role read
	manages               // that, or one with the role manage
)

// route is one operation of the contract.
type route struct {
	method  string
	pattern string
	access  access
	handle  handler
}

// API is the handler of all routes.
type API struct {
	b     *work.Broker
	store domain.View
	opts  Options
	log   *slog.Logger
	mux   *http.ServeMux
	// logins limits wrong admin tokens.
	logins *httpserve.Logins
	// nonces are those of signed requests.
	nonces *signature.Nonces
	// warnProxied warns once that the listener is not private.
	warnProxied func()
}

// Options change how an API works.
type Options struct {
	// Logger gets an entry for each request. Default: discard.
	Logger *slog.Logger
	// Stopping is closed when long polls are to end, before the server waits
	// for them. Nil means never.
	Stopping <-chan struct{}
	// Backup copies the store. Nil: it is not this process's to copy.
	Backup *Backup
	// AdminToken is needed for what is not everybody's; empty: nothing is. It may be a hash.
	AdminToken string
	// FailedLogins is how many wrong admin tokens an address may show in a minute; 0: any number.
	FailedLogins int
	// OpenMetrics lets everybody read the metrics.
	OpenMetrics bool
	// Gateway checks the signatures of requests. Nil: they need none.
	Gateway *Gateway
	// Listener is the address, and Loopback tells whether only this machine can reach it.
	Listener string
	Loopback bool
	// MaxBody is the largest request body, in bytes.
	MaxBody int64
	// WriteTimeout bounds an answer, long polls included. 0: it has no bound.
	WriteTimeout time.Duration
	// Seed is what the configuration wants to exist, to be shown.
	Seed any
}

// Backup copies the streams of a store, in their order.
type Backup struct {
	Streams []string
	Copy    func(ctx context.Context, stream string, to io.Writer) error
}

// New makes the handler of a broker's routes.
func New(b *work.Broker, opts Options) *API {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{b: b, store: b.Store(), opts: opts, log: opts.Logger, mux: http.NewServeMux()}
	a.logins = httpserve.NewLogins(opts.FailedLogins, a.log, b.Metrics().LoginFailed)
	if g := opts.Gateway; g != nil {
		a.nonces = signature.NewNonces(2*g.Tolerance, noncesMost)
	}
	a.warnProxied = sync.OnceFunc(func() {
		a.log.Warn("a request came through a proxy: a listener on loopback is not private then; set [admin] token, and [consumer-connection] networks to public",
			"listener", opts.Listener)
	})
	for _, r := range a.routes() {
		if r.pattern == "/metrics" && opts.OpenMetrics {
			r.access = open
		}
		a.mux.Handle(r.method+" "+r.pattern, a.serve(r))
	}
	return a
}

func (a *API) routes() []route {
	const (
		channel  = "/channel/{channel}"
		consumer = channel + "/consumer/{consumer}"
		job      = consumer + "/job/{job}"
	)
	return []route{
		{"GET", "/producers", admin, a.listProducers},
		{"GET", "/producer/{producer}", admin, a.getProducer},
		{"PUT", "/producer/{producer}", admin, a.putProducer},
		{"GET", "/channels", admin, a.listChannels},
		{"GET", channel, reads, a.getChannel},
		{"PUT", channel, manages, a.putChannel},
		{"GET", channel + "/consumers", reads, a.listConsumers},
		{"GET", consumer, reads, a.getConsumer},
		{"PUT", consumer, manages, a.putConsumer},
		{"DELETE", consumer, manages, a.deleteConsumer},
		{"POST", consumer + "/pause", manages, a.pauseConsumer},
		{"POST", consumer + "/resume", manages, a.resumeConsumer},

		{"GET", channel + "/access", manages, a.listAccesses},
		{"PUT", channel + "/access/{access}", manages, a.putAccess},
		{"DELETE", channel + "/access/{access}", manages, a.deleteAccess},

		{"POST", channel + "/broadcast", open, a.broadcast},
		{"GET", channel + "/messages", reads, a.listMessages},
		{"GET", channel + "/messages-status", reads, a.messagesStatus},
		{"GET", channel + "/message/{message}", reads, a.getMessage},
		{"GET", channel + "/scheduled-messages", reads, a.listScheduled},
		{"GET", channel + "/scheduled-message/{message}", reads, a.getScheduled},
		{"DELETE", channel + "/scheduled-message/{message}", open, a.cancelScheduled},

		{"GET", consumer + "/queued-jobs", open, a.queuedJobs},
		{"POST", consumer + "/claim", open, a.claim},
		{"POST", consumer + "/jobs", open, a.transitionJobs},
		{"GET", job, open, a.getJob},
		{"POST", job, open, a.transitionJob},
		{"DELETE", job, open, a.deleteJob},
		{"GET", job + "/attempts", reads, a.listAttempts},
		{"POST", job + "/extend", open, a.extendJob},
		{"POST", job + "/requeue-dead-job", open, a.requeueJob},
		{"GET", consumer + "/dlq", reads, a.listDead},
		{"POST", consumer + "/dlq", open, a.requeueDead},
		{"DELETE", consumer + "/dlq", open, a.purgeDead},

		{"POST", consumer + "/replay", manages, a.startReplay},
		{"GET", consumer + "/replay/{replay}", reads, a.getReplay},
		{"DELETE", consumer + "/replay/{replay}", manages, a.cancelReplay},

		{"GET", "/job-status", admin, a.jobStatus},
		{"GET", "/dlq-status", admin, a.deadStatus},
		{"GET", "/_status", open, a.status},
		{"GET", "/healthz", open, a.healthy},
		{"GET", "/readyz", open, a.ready},
		{"GET", "/metrics", admin, a.metrics},
		{"GET", "/backup", admin, a.listBackup},
		{"GET", "/backup/{stream}", admin, a.copyStream},
		{"GET", "/openapi.json", open, a.document},
	}
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-ID")
	if id == "" || len(id) > 200 {
		id = domain.NewID()
	}
	w.Header().Set("X-Request-ID", id)
	if a.opts.Loopback && proxied(r.Header) {
		a.warnProxied()
	}
	rec := &httpserve.Recorder{ResponseWriter: w}
	begin := time.Now()
	pattern := a.dispatch(rec, r)
	took := time.Since(begin)
	a.b.Metrics().Request(pattern, httpserve.MethodLabel(r.Method), rec.Status(), took)
	a.log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("requestId", id), slog.String("method", r.Method),
		slog.String("path", r.URL.EscapedPath()), slog.Int("status", rec.Status()), slog.Duration("took", took))
}

// proxied tells whether a proxy passed a request on.
func proxied(h http.Header) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if _, ok := h[name]; ok {
			return true
		}
	}
	return false
}

// dispatch serves a request and returns the pattern of its route.
func (a *API) dispatch(w *httpserve.Recorder, r *http.Request) (pattern string) {
	if err := a.verifyGateway(r); err != nil {
		a.fail(w, r, err)
		return "gateway"
	}
	if a.opts.AdminToken == "" {
		if err := httpserve.CheckBrowser(r, a.opts.Loopback); err != nil {
			a.fail(w, r, &httpError{http.StatusForbidden, err.Error()})
			return "browser"
		}
	}
	if to, ok := a.withoutSlash(r); ok {
		code := http.StatusPermanentRedirect
		if r.Method == http.MethodGet {
			code = http.StatusMovedPermanently
		}
		http.Redirect(w, r, to, code)
		return "redirect"
	}
	return httpserve.Dispatch(a.mux, w, r, a.log, func(err error) { a.fail(w, r, err) })
}

// withoutSlash is where a path leads that has a slash behind that of a route: the original redirects it there.
func (a *API) withoutSlash(r *http.Request) (to string, ok bool) {
	escaped, ok := strings.CutSuffix(r.URL.EscapedPath(), "/")
	if !ok || path.Clean(escaped) != escaped { // two slashes in front would lead to another host
		return "", false
	}
	u := *r.URL
	u.RawPath = escaped
	u.Path = strings.TrimSuffix(u.Path, "/")
	route := *r
	route.URL = &u
	if _, pattern := a.mux.Handler(&route); pattern == "" {
		return "", false
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String(), true
}

// serve wraps a route's handler with what all have in common.
func (a *API) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, a.opts.MaxBody)
		err := checkPath(r)
		if err == nil {
			err = a.checkAccess(r, route.access)
		}
		if err == nil {
			err = checkQuery(r, route.pattern)
		}
		if err == nil {
			err = route.handle(w, r)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	})
}

// checkPath refuses IDs that could not be shown again in JSON.
func checkPath(r *http.Request) error {
	if !utf8.ValidString(r.URL.Path) {
		return &httpError{http.StatusBadRequest, "Bad Request: the path " + strconv.Quote(r.URL.EscapedPath()) + " is not UTF-8"}
	}
	return nil
}

// retryAfter is when to come again, in seconds, after a 503: what a node lacks
// then is mostly back soon, and it is asked anew each time.
const retryAfter = "1"

// fail writes an error in the form of the contract.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, text := describe(err)
	if code >= http.StatusInternalServerError && r.Context().Err() == nil {
		level := slog.LevelWarn
		if code == http.StatusServiceUnavailable && (r.URL.Path == "/readyz" || errors.Join(a.store.Ready(), a.b.Room()) != nil) {
			level = slog.LevelDebug // said once, by who has noticed
		}
		a.log.Log(r.Context(), level, "request failed", "requestId", w.Header().Get("X-Request-ID"), "method", r.Method, "path", r.URL.EscapedPath(), "error", err)
	}
	if e, ok := errors.AsType[*httpserve.LoginsError](err); ok {
		w.Header().Set("Retry-After", e.Seconds())
	}
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter)
	}
	if refused, ok := errors.AsType[*httpserve.MethodError](err); ok {
		w.Header().Set("Allow", refused.Allow)
	}
	writeError(w, code, text)
}

func (a *API) healthy(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, map[string]string{"status": "ok"})
	return nil
}

func (a *API) ready(w http.ResponseWriter, _ *http.Request) error {
	if err := errors.Join(a.store.Ready(), a.b.Room()); err != nil {
		return err
	}
	select {
	case <-a.opts.Stopping:
		return errors.Join(domain.ErrUnavailable, errors.New("shutting down"))
	default:
	}
	writeJSON(w, map[string]string{"status": "ready"})
	return nil
}

func (a *API) metrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(a.b.Metrics().Registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

func (a *API) document(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
	return nil
}

// link builds a relative URL whose every other part is an ID.
func link(parts ...string) string {
	var b strings.Builder
	for i, part := range parts {
		b.WriteByte('/')
		if i%2 == 1 {
			part = httpserve.EscapeID(part)
		}
		b.WriteString(part)
	}
	return b.String()
}
