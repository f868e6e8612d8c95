// Package httpapi is the relay's HTTP interface. openapi.json documents it. A test compares the document with the routes.
package httpapi

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/tokens"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

//go:embed openapi.json
var openAPI []byte

// maxAdminBody bounds the body of a request other than a message, unless the server's limit is lower.
const maxAdminBody = 4 << 20

// Options configure the interface.
type Options struct {
	HTTP   service.HTTP
	Admin  service.Admin
	Logger *slog.Logger
	// Stopping ends when requests must stop waiting.
	Stopping context.Context
	// Permitted returns an error that names the missing permission of the NATS server, or nil.
	Permitted func() error
}

// API serves the routes.
type API struct {
	store *store.Store
	work  *work.Workers
	opts  Options
	// logins limits wrong admin tokens.
	logins *httpserve.Logins
}

// The access of routes.
const (
	open   = httpserve.Open
	admin  = iota // needs the admin token
	sender        // needs a sender's token, or the admin token
)

// New returns the handler.
func New(s *store.Store, w *work.Workers, opts Options) http.Handler {
	opts.HTTP.MaxBodyBytes = min(opts.HTTP.MaxBodyBytes, s.MaxPayload())
	a := &API{store: s, work: w, opts: opts, logins: httpserve.NewLogins(opts.Admin.MaxFailed, opts.Logger, w.Metrics.LoginFailed)}
	loopback, _ := service.Loopback(opts.HTTP.Listener) // the configuration is valid
	return httpserve.NewFrame(httpserve.System{
		Log: opts.Logger, OpenMetrics: opts.HTTP.OpenMetrics, Unguarded: opts.Admin.Token == "", Loopback: loopback, Private: httpserve.AdminToken,
		Observe: w.Metrics.Request, Check: a.check, Describe: describe,
	}, append(a.routes(), httpserve.Common(admin, w.Metrics.Handler(), openAPI, a.ready)...))
}

func (a *API) routes() []httpserve.Route {
	on := httpserve.On
	return []httpserve.Route{
		on("GET", "/v1/receivers", admin, httpserve.Show(a.listReceivers)),
		on("GET", "/v1/receivers/{name}", admin, httpserve.Show(a.getReceiver)),
		on("PUT", "/v1/receivers/{name}", admin, a.changeReceiver(true)),
		on("PATCH", "/v1/receivers/{name}", admin, a.changeReceiver(false)),
		on("DELETE", "/v1/receivers/{name}", admin, a.deleteReceiver),
		on("GET", "/v1/senders", admin, httpserve.Show(a.listSenders)),
		on("GET", "/v1/senders/{name}", admin, httpserve.Show(a.getSender)),
		on("PUT", "/v1/senders/{name}", admin, a.changeSender(true)),
		on("PATCH", "/v1/senders/{name}", admin, a.changeSender(false)),
		on("DELETE", "/v1/senders/{name}", admin, a.deleteSender),

		on("POST", "/v1/messages", sender, a.postMessage, "wait"),
		on("POST", "/v1/messages:batch", sender, a.postBatch),
		on("GET", "/v1/messages", admin, httpserve.Show(a.listMessages), "receiver", "source", "message", "status", "since", "until", "limit", "cursor"),
		on("GET", "/v1/messages/{source}/{id}/request", admin, httpserve.ShowOf(a.findMessage, a.getRequest)),
		on("GET", "/v1/messages/{source}/{id}", sender, httpserve.ShowOf(a.findMessage, a.getMessage)),
		on("GET", "/v1/messages/{source}/{id}/response", sender, a.getResponse, "wait"),

		on("GET", "/v1/failed", admin, httpserve.Show(a.listFailed), "receiver", "source", "message", "stage", "reason", "since", "until", "limit",
			"cursor"),
		on("POST", "/v1/failed:redrive", admin, a.operate(store.Redrive)),
		on("POST", "/v1/failed:skip", admin, a.operate(store.Skip)),
		on("POST", "/v1/failed:purge", admin, a.operate(store.Purge)),
		on("GET", "/v1/operations", admin, httpserve.Show(a.listOperations)),
		on("GET", "/v1/operations/{id}", admin, a.showOperation((*bulk.Runner).Get)),
		on("DELETE", "/v1/operations/{id}", admin, a.showOperation((*bulk.Runner).Cancel)),
	}
}

var known = []httpserve.Known{
	{Err: store.ErrNotFound, Status: http.StatusNotFound, Code: "not_found"},
	{Err: store.ErrConflict, Status: http.StatusServiceUnavailable, Code: "unavailable", Message: "it was changed meanwhile, try again"},
	{Err: store.ErrUnavailable, Status: http.StatusServiceUnavailable, Code: "unavailable", Message: "the store is not available, try again"},
	{Err: store.ErrTooLarge, Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: "it is larger than the store accepts"},
	{Err: store.ErrUnreadable, Status: http.StatusServiceUnavailable, Code: "unavailable"},
}

func describe(err error) *httpserve.Error { return httpserve.Describe(err, known) }

// check refuses a request before its route's handler sees it.
func (a *API) check(w http.ResponseWriter, r *http.Request, route httpserve.Route) error {
	if route.Access != sender {
		// The routes of senders have their own limits.
		r.Body = http.MaxBytesReader(w, r.Body, int64(min(maxAdminBody, a.store.MaxPayload())))
	}
	return cmp.Or(a.authorize(r, route.Access), checkNames(r))
}

// checkNames refuses an invalid name in a PUT. For other requests, a name that is longer than any valid one gets 404. The store would build a subject
// from it that is longer than NATS allows, and the server would close the connection that all requests share.
func checkNames(r *http.Request) error {
	if r.Method == http.MethodPut {
		if err := work.CheckID("the name", r.PathValue("name")); err != nil {
			return httpserve.BadRequest("%v", err)
		}
	}
	for _, segment := range []string{"source", "id", "name"} {
		if name := r.PathValue(segment); len(name) > work.MaxID {
			return httpserve.NotFound("nothing has a name of %d bytes: %d are the most", len(name), work.MaxID)
		}
	}
	return nil
}

func (a *API) isAdmin(r *http.Request) bool {
	token := httpserve.Bearer(r)
	return tokens.Same(a.opts.Admin.Token, token) || a.opts.Admin.Token == "" && token == ""
}

func (a *API) authorize(r *http.Request, needed int) error {
	token := httpserve.Bearer(r)
	switch {
	case needed == open, a.isAdmin(r), needed == admin && a.opts.Admin.Token == "", needed == sender && a.store.KnowsToken(token):
		return nil
	}
	return a.logins.Refuse(r, token, httpserve.Refuse(http.StatusUnauthorized, "unauthorized", "give a valid token as Authorization: Bearer"))
}

// senderOf returns the sender of a source, or an error if the request may not use the source.
func (a *API) senderOf(r *http.Request, source string) (string, error) {
	if a.isAdmin(r) {
		return a.store.OwnerOf(source), nil
	}
	// Two senders may have the same prefix, and the same token.
	if name := a.store.OwnerByToken(source, httpserve.Bearer(r)); name != "" {
		return name, nil
	}
	return "", httpserve.Refuse(http.StatusForbidden, "forbidden", "source %q is not this sender's", source)
}

func (a *API) ready(_ http.ResponseWriter, r *http.Request) error {
	err := a.opts.Permitted()
	if err == nil {
		err = a.store.Ready(r.Context())
	}
	if err == nil && a.opts.Stopping.Err() != nil {
		err = fmt.Errorf("%w: shutting down", store.ErrUnavailable)
	}
	return err
}
