// Package console is a web console for operators. It shows the state of consumers, a broker, a relay and a feed. Operators can find failures, and
// requeue, skip or delete one of them, or all that match a filter:
//
//	c := console.Handler(console.Config{NATS: console.JetStream(js), Loopback: true})
//	defer c.Close()
//	mux.Handle("/console/", http.StripPrefix("/console", c))
//
// The pages work under any path, with or without JavaScript. docs/console.md describes them.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/source"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/service/exporter"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// NATS is the source of the pages of consumers and messages.
type NATS = page.NATS

// PartitionSet is a set of package partition, as the console shows it.
type PartitionSet = page.PartitionSet

// AccountInfo describes the server of the NATS connection, and how much its account uses.
type AccountInfo = page.AccountInfo

// Broker is the source of the pages of a broker.
type Broker = page.BrokerSource

// Caller is the source of the pages of a system with an HTTP interface.
type Caller = page.Caller

// Feed is the source of the pages of a feed.
type Feed = page.FeedSource

// FeedWatcher counts the items that a watcher has completed.
type FeedWatcher = page.FeedWatcher

// JetStream returns the source for the account of js, with its API prefix and domain.
func JetStream(js jetstream.JetStream) NATS { return source.JetStream{JetStream: js} }

// Role is what a token allows its user to do.
type Role int

// The roles.
const (
	NoAccess Role = iota // the token is invalid
	ReadOnly             // may see pages
	Admin                // may also run actions
)

// Config configures a console: its sources and its users. The zero value shows an empty console to everybody.
type Config struct {
	// NATS is the account whose consumers and messages the console shows; see [JetStream]. If it is nil, there are no such pages.
	NATS NATS
	// Broker makes requests to a broker with its admin token. An Admin of package broker/client implements it. If it is nil, there are no pages for a
	// broker.
	Broker Broker
	// Relay makes requests to a relay with its admin token. A Client of package relay/client implements it. If it is nil, there are no pages for a
	// relay.
	Relay Caller
	// Feed reads and changes the tables of a feed. A feed.Store implements it. If Feed and OpenFeed are nil, there are no pages for a feed.
	Feed Feed
	// OpenFeed opens the feed when the console first needs it, for a database that may not answer yet. The console shows its error, and calls it
	// again. It is not called concurrently, and not after it has succeeded. The default returns Feed.
	OpenFeed func(ctx context.Context) (Feed, error)
	// FeedWatcher is a watcher in this process whose throughput the console shows. A feed.Watcher implements it. If it is nil, the console shows no
	// throughput of the feed.
	FeedWatcher FeedWatcher
	// Access returns the user of a token. The user's name is for the log of actions. [Tokens] and [Users] provide such a function. It is called for
	// each request, so that a session ends when its token is no longer valid. If it is nil, everybody who can reach the console is an Admin.
	Access func(token string) User
	// UserHeader is the header in which a trusted proxy of the listener names the user, such as X-Forwarded-User. The token determines the role.
	UserHeader string
	// ReaderPayloads allows users with the role ReadOnly to see payloads and headers of messages. Nobody can see those in the streams and buckets of
	// broker, relay and partition, which contain tokens and signing secrets.
	ReaderPayloads bool
	// State is the name of a key-value bucket in the NATS account, which the console creates. It keeps the log of actions, the operations and the
	// values of charts for 30 days, so that they survive a restart. If State or NATS is empty, they are only in memory.
	State string
	// Alerts reports objects that become red, and that recover. [NewAlerts] returns it. If it is nil, no alerts are sent.
	Alerts *Alerts
	// Environment is the name of the environment that the console shows, such as production. The header of each page shows it, in a colour that
	// depends on the name. If it is empty, the header shows none.
	Environment string
	// Loopback specifies that only this machine can reach the listener. The console then refuses requests for other host names, because a website can
	// make its own name resolve to this machine (DNS rebinding).
	Loopback bool
	// Log records each action and each wrong token. Nil means slog.Default.
	Log *slog.Logger
}

// maxEntries is the maximum number of actions in the log that the console shows. The process's log has older ones.
const maxEntries = 1000

// Console is an [http.Handler] that serves the pages. It is safe for concurrent use.
type Console struct {
	cfg      Config
	log      *slog.Logger
	sampler  *sample.Sampler
	pages    map[string]page.Func
	nav      []view.Link
	sessions *sessions
	actions  *operation.Store[view.Entry]
	marks    *page.Marks
	renders  renders
	exporter http.Handler // nil if there is none
	account  atomic.Pointer[string]
	among    among
}

// Handler returns a console. It samples its sources for the charts until Close is called.
func Handler(cfg Config) *Console {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return newConsole(cfg, newSessions(cfg, cfg.Log), among{})
}

func newConsole(cfg Config, sessions *sessions, place among) *Console {
	c := &Console{
		cfg: cfg, log: cfg.Log, sessions: sessions, among: place, renders: renders{all: map[string]*render{}},
		sampler: sample.New(), pages: map[string]page.Func{}, marks: page.NewMarks(),
		actions: operation.NewStore("log.", maxEntries, func(_, _ view.Entry) bool { return false }),
	}
	runner := operation.NewRunner(c.log)
	operations := []operation.Source{runner}
	j, onNATS := cfg.NATS.(source.JetStream)
	if onNATS {
		export := exporter.Config{JS: j.JetStream, Logins: c.sessions.logins, Loopback: cfg.Loopback, Log: c.log}
		if cfg.Access != nil {
			export.Valid = func(token string) bool { return cfg.Access(token).Role != NoAccess }
		}
		c.exporter = exporter.Handler(export)
		c.sampler.Go(func(ctx context.Context) { c.askAccount(ctx, j) })
	}
	var summaries []page.Summary
	c.add(page.Family{Title: "Overview", First: "overview"})
	if cfg.NATS != nil {
		consumers := page.NewConsumers(c.sampler, cfg.NATS, runner)
		partitions := page.NewPartitions(c.sampler, cfg.NATS, consumers)
		letters := page.NewDeadLetters(c.sampler, cfg.NATS, runner, consumers, c.marks)
		messages := page.NewMessages(c.sampler, cfg.NATS, consumers, letters)
		summaries = append(summaries, consumers, partitions, letters, messages, page.NewAccount(c.sampler, cfg.NATS))
		c.add(consumers.Family, partitions.Family, messages.Family, letters.Family)
	}
	if cfg.Broker != nil {
		broker := page.NewBroker(c.sampler, cfg.Broker, runner, c.marks)
		summaries, operations = append(summaries, broker), append(operations, broker)
		c.add(broker.Family)
	}
	if cfg.Relay != nil {
		relay := page.NewRelay(c.sampler, cfg.Relay, runner, c.marks)
		summaries, operations = append(summaries, relay), append(operations, relay)
		c.add(relay.Family)
	}
	if cfg.Feed != nil {
		cfg.OpenFeed = func(context.Context) (Feed, error) { return cfg.Feed, nil }
	}
	if cfg.OpenFeed != nil {
		feed := page.NewFeed(c.sampler, cfg.OpenFeed, cfg.FeedWatcher, runner)
		summaries = append(summaries, feed)
		c.add(feed.Family)
	}
	if cfg.Relay != nil || cfg.Broker != nil {
		c.add(page.Failures(summaries))
	}
	begin := func() { // not earlier, because the marks are not known before
		runner.Hold(false)
		c.sampler.Go(func(ctx context.Context) { cfg.Alerts.run(ctx, summaries, cfg.Environment, place.path, c.log) })
		c.sampler.Go(runner.Run)
	}
	if onNATS && cfg.State != "" {
		runner.Hold(true)
		open := func(ctx context.Context) (operation.Keep, error) { return j.Bucket(ctx, cfg.State) }
		c.sampler.Go(func(ctx context.Context) { c.outlive(ctx, runner, open, begin) })
	} else {
		begin()
	}
	c.pages["overview"] = page.Overview(summaries)
	c.add(page.Operations(c.sampler, operations))
	c.add(page.Log(c.entries))
	return c
}

// add registers families of pages.
func (c *Console) add(families ...page.Family) {
	for _, f := range families {
		c.nav = append(c.nav, view.Link{Text: f.Title, Href: f.First})
		maps.Copy(c.pages, f.Pages)
	}
}

// Close stops the sampling and waits for its end. The streams of open pages end with the HTTP server.
func (c *Console) Close() { c.sampler.Close() }

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	r = httpserve.Within(r, c.routed)
	if c.cfg.Loopback && !httpserve.OwnName(r) {
		http.Error(w, "This console listens on loopback and answers to localhost, loopback addresses and its public URL only, not to "+
			strconv.Quote(r.Host)+".", http.StatusForbidden)
		return
	}
	if httpserve.OtherSite(r) {
		http.Error(w, "A page of another site cannot use the console.", http.StatusForbidden)
		return
	}
	if len(r.URL.RequestURI()) > maxURL {
		http.Error(w, fmt.Sprintf("The address has more than %d bytes.", maxURL), http.StatusRequestURITooLong)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if file, ok := strings.CutPrefix(name, "static/"); ok {
		serveStatic(w, r, file)
		return
	}
	if c.exported(name) {
		c.exporter.ServeHTTP(w, r)
		return
	}
	r = known(r)
	switch {
	case name == "login" && r.Method == http.MethodPost:
		c.login(w, r)
		return
	case name == "logout" && r.Method == http.MethodPost:
		c.logout(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		h.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "Use GET or POST.", http.StatusMethodNotAllowed)
		return
	}
	user, ok := c.sessions.user(r)
	switch {
	case name == "":
		first := c.nav[0].Href
		if c.among.path == "" { // the URL of a single console may lack the trailing slash
			first = httpserve.Here(r, first)
		}
		redirect(w, first)
		return
	case !ok && r.URL.Query().Has("live"):
		// Make the open page ask for a token.
		h.Set("Content-Type", "text/event-stream")
		_ = send(http.NewResponseController(w), w, event("reload", nil)) // the browser may be gone
		return
	case !ok:
		c.askLogin(w, r, http.StatusUnauthorized, "")
		return
	}
	c.serve(w, r, name, user)
}

// serve answers a request of a user who has signed in.
func (c *Console) serve(w http.ResponseWriter, r *http.Request, name string, user user) {
	build, l := c.pages[name], c.layout(r, user)
	var err error
	switch {
	case name == "login":
		redirect(w, "./")
	case build == nil:
		err = &page.Problem{Status: http.StatusNotFound, Text: "There is no such page.", Fix: "The navigation above has all pages."}
	case r.Method == http.MethodPost:
		err = c.act(w, r, l, user, build)
	case r.URL.Query().Has("live"):
		c.stream(w, r, user, build)
	default:
		err = c.show(w, r, l, user, build)
	}
	if err != nil {
		c.fail(w, r, l, err)
	}
}

// routed reports whether the console serves a request.
func (c *Console) routed(r *http.Request) bool {
	name := strings.TrimPrefix(r.URL.Path, "/")
	return name == "" || name == "login" || name == "logout" || strings.HasPrefix(name, "static/") || c.pages[name] != nil || c.exported(name)
}

// exported reports whether a path is for programs: for metrics, or for an autoscaler.
func (c *Console) exported(name string) bool {
	return c.exporter != nil && (name == "metrics" || strings.HasPrefix(name, "v1/scale/"))
}

// build builds a page. The page waits for all of its sources together for at most [sample.Patience].
func (c *Console) build(f page.Func, r *http.Request, u user, now time.Time) (*view.Page, error) {
	ctx, cancel := context.WithTimeout(r.Context(), sample.Patience)
	defer cancel()
	return f(ctx, page.Request{Query: r.URL.Query(), Now: now, User: u.name, Payloads: u.role == Admin || c.cfg.ReaderPayloads})
}

// show responds with a page, or with the page that confirms an action.
func (c *Console) show(w http.ResponseWriter, r *http.Request, l *view.Layout, u user, build page.Func) error {
	p, err := c.build(build, r, u, l.Now)
	if err != nil {
		return err
	}
	if p.Download != nil {
		download(w, p.Download)
		return nil
	}
	l.Page = p
	if did, err := r.Cookie(didCookie(r, here(r), "", 0).Name); err == nil {
		if one, ok := c.actions.Get(did.Value); ok {
			l.Did = &one
		}
		http.SetCookie(w, didCookie(r, here(r), "", -1))
	}
	if name := r.URL.Query().Get("do"); name != "" {
		l.Confirm = p.Action(name)
		switch {
		case l.ReadOnly:
			return errReadOnly
		case l.Confirm == nil:
			return gone(name)
		case l.Confirm.Preview != nil:
			l.Preview = l.Confirm.Preview(r.Context(), url.Values{})
		}
	}
	c.write(w, r, http.StatusOK, "layout", l)
	return nil
}

// fail responds with a page that describes an error.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, l *view.Layout, err error) {
	status := http.StatusInternalServerError
	l.Failure = &view.Failure{Text: err.Error(), Back: l.Here()}
	if p, ok := errors.AsType[*page.Problem](err); ok {
		status, l.Failure.Fix = p.Status, p.Fix
	}
	titles := map[int]string{
		http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed", http.StatusConflict: "Not possible now",
	}
	l.Failure.Title = cmp.Or(titles[status], "This did not work")
	if status == http.StatusNotFound {
		l.Failure.Back = ""
	}
	l.Page, l.Confirm = nil, nil
	c.write(w, r, status, "layout", l)
}

// write responds with a rendered template.
func (c *Console) write(w http.ResponseWriter, r *http.Request, status int, template string, data any) {
	body, err := view.Render(template, data)
	if err != nil {
		c.log.Error("console: page", "path", r.URL.Path, "error", err)
		http.Error(w, "The page cannot be shown; the log has the reason.", http.StatusInternalServerError)
		return
	}
	reply(w, r, status, "text/html", body)
}
