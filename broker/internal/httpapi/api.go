// Package httpapi is the HTTP interface of the broker: its routes, the order of checks, and the texts and codes of responses. openapi.json documents
// it. A test compares the document with the routes and their responses.
package httpapi

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	directory "github.com/jetpull/jetpull/broker/internal/admin"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/signature"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

//go:embed openapi.json
var openAPI []byte

// The role that a route requires, in addition to the tokens that its handler checks. If there is no admin token, every request has all rights.
const (
	open    = httpserve.Open
	reads   = int(domain.RoleRead)
	manages = int(domain.RoleManage)
	admin   = manages + 1 // the admin token has all rights
)

// API is the handler of all routes.
type API struct {
	Directory *directory.Directory

	b     *work.Broker
	opts  Options
	log   *slog.Logger
	frame *httpserve.Frame
	// logins limits attempts with wrong admin tokens.
	logins *httpserve.Logins
	// nonces remembers the nonces of signed requests.
	nonces *signature.Nonces
}

// The handlers are grouped by their users. kind has the handlers of the registry.
type (
	messages  struct{ *API } // of broadcasts
	workers   struct{ *API } // of the jobs of pull consumers
	operators struct{ *API } // of pauses, access tokens, dead jobs, counts and backups
)

// Options configure an API.
type Options struct {
	HTTP  service.HTTP
	Admin service.Admin // its token may be a hash
	// Logger gets an entry for each request.
	Logger *slog.Logger
	// Stopping ends when long polls must end, before the server waits for requests in progress.
	Stopping context.Context
	// Backup copies the store. Nil means that the store belongs to another process.
	Backup *Backup
	// Gateway checks the signatures of requests. Nil means that requests need none.
	Gateway *Gateway
	// WriteTimeout is the time limit of a response, including a long poll. 0 means none.
	WriteTimeout time.Duration
	// Seed is the configured seed, for display.
	Seed any
}

// Backup copies the streams of a store in the given order.
type Backup struct {
	Streams []string
	Copy    func(ctx context.Context, stream string, to io.Writer) error
}

// New returns the handler of a broker's routes.
func New(b *work.Broker, d *directory.Directory, opts Options) *API {
	a := &API{Directory: d, b: b, opts: opts, log: opts.Logger}
	a.logins = httpserve.NewLogins(opts.Admin.MaxFailed, a.log, b.Metrics.LoginFailed)
	if g := opts.Gateway; g != nil {
		a.nonces = signature.NewNonces(2*g.Tolerance, noncesMost)
	}
	loopback, _ := service.Loopback(opts.HTTP.Listener) // the configuration is valid
	a.frame = httpserve.NewFrame(httpserve.System{
		Log: a.log, OpenMetrics: opts.HTTP.OpenMetrics, Unguarded: opts.Admin.Token == "", Loopback: loopback, Private: httpserve.AdminToken,
		Now: b.Now, Observe: b.Metrics.Request, Verify: a.verifyGateway, Redirect: a.withoutSlash, Check: a.check, Describe: describe, Text: true,
		Quiet: a.saidElsewhere,
	}, a.routes())
	return a
}

func (a *API) routes() []httpserve.Route {
	on := httpserve.On
	producers, channels, consumers := a.producers(), a.channels(), a.consumers()
	const (
		channel  = "/channel/{channel}"
		consumer = channel + "/consumer/{consumer}"
		job      = consumer + "/job/{job}"
	)
	return append(httpserve.Common(admin, a.b.Metrics.Handler(), openAPI, a.ready),
		on("GET", "/producers", admin, httpserve.Show(producers.listAll), "next", "previous"),
		on("GET", "/producer/{producer}", admin, producers.get),
		on("PUT", "/producer/{producer}", admin, producers.put, "keep"),
		on("DELETE", "/producer/{producer}", admin, producers.delete),
		on("GET", "/channels", admin, httpserve.Show(channels.listAll), "next", "previous"),
		on("GET", channel, reads, channels.get),
		on("PUT", channel, manages, channels.put, "keep"),
		on("DELETE", channel, admin, channels.delete, "force"),
		on("GET", channel+"/consumers", reads, httpserve.Show(consumers.listAll), "next", "previous"),
		on("GET", consumer, reads, consumers.get),
		on("PUT", consumer, manages, consumers.put, "keep"),
		on("DELETE", consumer, manages, consumers.delete),
		on("POST", consumer+"/pause", manages, operators{a}.setPause(domain.PausedByOperator)),
		on("POST", consumer+"/resume", manages, operators{a}.setPause("")),

		on("GET", channel+"/access", manages, httpserve.ShowOf(a.channel, operators{a}.listAccesses)),
		on("GET", channel+"/access/{access}", manages, a.accesses().get),
		on("PUT", channel+"/access/{access}", manages, a.accesses().put, "keep"),
		on("DELETE", channel+"/access/{access}", manages, a.accesses().delete),

		on("POST", channel+"/broadcast", open, messages{a}.broadcast),
		on("GET", channel+"/messages", reads, httpserve.ShowOf(a.channel, messages{a}.listMessages), append(searchFields, "next", "previous", "status")...),
		on("GET", channel+"/messages-status", reads, httpserve.Show(messages{a}.messagesStatus)),
		on("GET", channel+"/message/{message}", reads, httpserve.ShowOf(a.channel, messages{a}.getMessage)),
		on("GET", channel+"/scheduled-messages", reads, httpserve.ShowOf(a.channel, messages{a}.listScheduled), "next", "previous", "status"),
		on("GET", channel+"/scheduled-message/{message}", reads, httpserve.ShowOf(a.channel, messages{a}.getScheduled)),
		on("DELETE", channel+"/scheduled-message/{message}", open, messages{a}.cancelScheduled),

		on("GET", consumer+"/queued-jobs", open, workers{a}.poll(workers{a}.queuedJobs), "limit", "wait"),
		on("POST", consumer+"/claim", open, workers{a}.poll(workers{a}.claim), "limit", "wait", "timeout"),
		on("GET", consumer+"/jobs", reads, httpserve.ShowOf(a.consumer, operators{a}.listJobs), "status", "message", "limit", "next"),
		on("POST", consumer+"/jobs", open, httpserve.ShowOf(workers{a}.checkPull, workers{a}.transitionJobs)),
		on("GET", job, open, httpserve.ShowOf(workers{a}.checkJob, workers{a}.getJob)),
		on("POST", job, open, httpserve.With(workers{a}.checkJob, workers{a}.transitionJob)),
		on("DELETE", job, open, workers{a}.deleteJob),
		on("GET", job+"/attempts", reads, httpserve.ShowOf(a.consumer, workers{a}.listAttempts)),
		on("POST", job+"/extend", open, httpserve.ShowOf(workers{a}.checkJob, workers{a}.extendJob)),
		on("POST", job+"/requeue-dead-job", open, httpserve.With(workers{a}.checkJob, workers{a}.requeueJob)),
		on("GET", consumer+"/dlq", reads, httpserve.ShowOf(a.consumer, operators{a}.listDead), "next", "previous"),
		on("POST", consumer+"/dlq", open, operators{a}.requeueDead),
		on("DELETE", consumer+"/dlq", open, httpserve.Show(operators{a}.purgeDead)),

		on("POST", consumer+"/purge", manages, httpserve.With(a.consumer, operators{a}.startPurge)),
		on("POST", consumer+"/replay", manages, httpserve.With(a.consumer, a.startReplay)),
		on("GET", consumer+"/replay/{replay}", reads, httpserve.ShowOf(a.replay, showReplay)),
		on("DELETE", consumer+"/replay/{replay}", manages, httpserve.With(a.replay, a.cancel)),

		on("GET", "/consumers", admin, httpserve.Show(operators{a}.consumerStates)),
		on("GET", "/replays", admin, httpserve.Show(operators{a}.listReplays)),
		on("GET", "/dead-jobs", admin, httpserve.Show(operators{a}.listAllDead), "consumer", "producer", "message", "reason", "since", "until", "limit"),
		on("POST", "/dead-jobs/requeue", admin, operators{a}.changeDead(domain.RequeueKind)),
		on("POST", "/dead-jobs/purge", admin, operators{a}.changeDead(domain.PurgeKind)),
		on("GET", "/dead-jobs/operations", admin, httpserve.Show(operators{a}.listDeadOperations)),
		on("GET", "/dead-jobs/operations/{operation}", admin, httpserve.ShowOf(operators{a}.deadOperation, showDeadOperation)),
		on("DELETE", "/dead-jobs/operations/{operation}", admin, httpserve.With(operators{a}.deadOperation, a.cancel)),
		httpserve.Probed("/job-status", admin, httpserve.Show(operators{a}.jobStatus)),
		on("GET", "/dlq-status", admin, httpserve.Show(operators{a}.deadStatus)),
		httpserve.Probed("/_status", open, httpserve.Show(operators{a}.status)),
		on("GET", "/backup", admin, httpserve.Show(operators{a}.listBackup)),
		on("GET", "/backup/{stream}", admin, operators{a}.copyStream),
	)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-ID")
	if id == "" || len(id) > 200 {
		id = domain.NewID()
	}
	w.Header().Set("X-Request-ID", id)
	a.frame.ServeHTTP(w, r)
}

// withoutSlash returns the path to which the original redirects a request with a trailing slash. The path is relative to the request's.
func (a *API) withoutSlash(r *http.Request) (to string, ok bool) {
	escaped, ok := strings.CutSuffix(r.URL.EscapedPath(), "/")
	if !ok || path.Clean(escaped) != escaped {
		return "", false
	}
	u := *r.URL
	u.RawPath = escaped
	u.Path = strings.TrimSuffix(u.Path, "/")
	route := *r
	route.URL = &u
	if !a.frame.Routed(&route) {
		return "", false
	}
	return strings.TrimSuffix("../"+path.Base(escaped)+"?"+u.RawQuery, "?"), true
}

func (a *API) check(w http.ResponseWriter, r *http.Request, route httpserve.Route) error {
	r.Body = http.MaxBytesReader(w, r.Body, int64(a.opts.HTTP.MaxBodyBytes))
	return a.checkAccess(r, route.Access)
}

// saidElsewhere reports whether the cause of a failure is already logged. During an outage, every request would log it again.
func (a *API) saidElsewhere(r *http.Request, status int) bool {
	return status == http.StatusServiceUnavailable && (r.URL.Path == "/readyz" || a.b.Ready() != nil)
}

func (a *API) ready(http.ResponseWriter, *http.Request) error {
	if err := a.b.Ready(); err != nil {
		return err
	}
	if a.opts.Stopping.Err() != nil {
		return errors.Join(domain.ErrUnavailable, errors.New("shutting down"))
	}
	return nil
}

// link returns the path of a resource as the client of a request must use it. Every second part is an ID.
func link(r *http.Request, parts ...string) string {
	var b strings.Builder
	for i, part := range parts {
		b.WriteByte('/')
		if i%2 == 1 {
			part = httpserve.EscapeID(part)
		}
		b.WriteString(part)
	}
	return httpserve.Link(r, b.String())
}

func refuse(status int, text string) error { return &httpserve.Error{Status: status, Message: text} }

// The responses of the contract that several checks use.
var (
	errNotFound     = refuse(http.StatusNotFound, "Request resource not found")
	errNoJob        = refuse(http.StatusNotFound, "job could not be found")
	errChannelToken = refuse(http.StatusForbidden, "channel token does not match")
	errPrecondition = refuse(http.StatusPreconditionFailed, "Precondition Failed")
)

// known maps the errors of the domain to responses.
var known = []httpserve.Known{
	{Err: domain.ErrDuplicateMessage, Status: http.StatusConflict},
	{Err: domain.ErrDuplicateScheduled, Status: http.StatusConflict},
	{Err: domain.ErrClaimLost, Status: http.StatusConflict},
	{Err: domain.ErrWaiting, Status: http.StatusConflict},
	{Err: domain.ErrConflict, Status: http.StatusConflict},
	{Err: domain.ErrRetriesLeft, Status: http.StatusNotFound},
	{Err: domain.ErrInvalidTransition, Status: http.StatusBadRequest},
	{Err: domain.ErrTimeoutWithInvalidState, Status: http.StatusBadRequest},
	{Err: domain.ErrInvalid, Status: http.StatusBadRequest},
	{Err: domain.ErrTooLarge, Status: http.StatusRequestEntityTooLarge},
	{Err: domain.ErrNotFound, Status: http.StatusNotFound, Message: errNotFound.Error()},
	{Err: domain.ErrStoreFull, Status: http.StatusServiceUnavailable, Message: "the store is full: work jobs off or try again later"},
	{Err: domain.ErrUnavailable, Status: http.StatusServiceUnavailable, Message: "the store is not available, try again"},
}

// describe returns the response to an error, with the texts of the contract.
func describe(err error) *httpserve.Error {
	e := httpserve.Describe(err, known)
	switch {
	case errors.Is(err, httpserve.ErrNoRoute):
		return &httpserve.Error{Status: e.Status, Message: errNotFound.Error()}
	case e.Status == http.StatusMethodNotAllowed:
		return &httpserve.Error{Status: e.Status, Message: "Method Not Allowed", Header: e.Header}
	}
	return e
}
