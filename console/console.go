// Package console is a web console for operators. It shows the state of consumers, a broker, a relay and a feed. Operators
// find failed items, and retry, skip or delete one of them or all that match a filter:
//
//	c := console.Handler(console.Config{NATS: console.JetStream(js), Loopback: true})
//	defer c.Close()
//	mux.Handle("/console/", http.StripPrefix("/console", c))
//
// The pages work under any path, with or without JavaScript. README.md describes them.
package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/source"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// NATS is the source of the pages of consumers and messages.
type NATS = page.NATS

// PartitionSet is a set of package partition as the console shows it.
type PartitionSet = page.PartitionSet

// Broker is the source of the pages of a broker.
type Broker = page.BrokerSource

// Caller is the source of the pages of a system with an HTTP interface.
type Caller = page.Caller

// Feed is the source of the pages of a feed.
type Feed = page.FeedSource

// FeedWatcher counts the items that a watcher has completed.
type FeedWatcher = page.FeedWatcher

// JetStream returns the source for the account of js, with its API prefix and domain.
func JetStream(js jetstream.JetStream) NATS { return source.JetStream{JS: js} }

// Role is what a token allows its user to do.
type Role int

// The roles.
const (
	NoAccess Role = iota // the token is not valid
	ReadOnly             // it shows pages
	Admin                // it also allows actions
)

// Config configures a console: its sources, and who may use it. The zero value shows an empty console to everybody.
type Config struct {
	// NATS is the account whose consumers and messages the console shows: see [JetStream]. Nil leaves these pages out.
	NATS NATS
	// Broker makes requests to a broker with its admin token. An Admin of package broker/client implements it. Nil leaves the
	// broker's pages out.
	Broker Broker
	// Relay makes requests to a relay with its admin token. A Client of package relay/client implements it. Nil leaves the relay's
	// pages out.
	Relay Caller
	// Feed reads and changes the tables of a feed. A feed.Store implements it. If it and OpenFeed are nil, the feed's pages are left out.
	Feed Feed
	// OpenFeed opens the feed when the console first needs it, for a database that does not answer yet. After an error the console shows that, and
	// calls it again. It is called by one goroutine at a time, and not after it has succeeded. The default returns Feed.
	OpenFeed func(ctx context.Context) (Feed, error)
	// FeedWatcher is a watcher in this process, whose throughput the console shows. A feed.Watcher implements it. Nil shows no
	// throughput of the feed.
	FeedWatcher FeedWatcher
	// Access returns the role of a token. [Tokens] makes one. It is called with each request, so a session ends when its token is no
	// longer valid. If it is nil, everybody who can reach the console is an Admin.
	Access func(token string) Role
	// Loopback states that only this machine can reach the listener. The console then refuses requests for other host names, because
	// a website can resolve its own name to this machine (DNS rebinding).
	Loopback bool
	// Log gets each action and each wrong token. Nil means slog.Default.
	Log *slog.Logger
}

// Console is an [http.Handler] that serves the pages. It may be used by several goroutines.
type Console struct {
	cfg      Config
	log      *slog.Logger
	sampler  *sample.Sampler
	pages    map[string]page.Func
	nav      []view.NavLink
	sessions *sessions
	actions  *actionLog
	renders  renders
	origin   *http.CrossOriginProtection
	static   map[string]asset
	version  string
}

// Handler returns a console. It samples its sources for the charts until Close.
func Handler(cfg Config) *Console {
	c := &Console{cfg: cfg, log: cfg.Log, sampler: sample.New(), pages: map[string]page.Func{}, actions: newActionLog(), origin: http.NewCrossOriginProtection()}
	if c.log == nil {
		c.log = slog.Default()
	}
	c.sessions = newSessions(cfg.Access, c.log)
	c.static, c.version = assets()
	runner := page.NewRunner(c.log)
	operations := []page.OperationSource{runner}
	var summaries []page.Summary
	c.add("Overview", "overview", nil)
	var letters *page.DeadLetters
	var broker *page.Broker
	var relay *page.Relay
	var feed *page.Feed
	if cfg.NATS != nil {
		consumers := page.NewConsumers(c.sampler, cfg.NATS, runner)
		summaries = append(summaries, consumers)
		c.add("Consumers", "consumers", consumers.Pages())
		c.add("Partitions", "sets", page.NewPartitions(cfg.NATS).Pages())
		c.add("Messages", "streams", page.NewMessages(c.sampler, cfg.NATS).Pages())
		letters = page.NewDeadLetters(c.sampler, cfg.NATS, runner)
		summaries = append(summaries, letters)
		c.add("Dead letters", "deadletters", letters.Pages())
	}
	if cfg.Broker != nil {
		broker = page.NewBroker(c.sampler, cfg.Broker, runner)
		summaries, operations = append(summaries, broker), append(operations, broker)
		c.add("Broker", "broker", broker.Pages())
	}
	if cfg.Relay != nil {
		relay = page.NewRelay(c.sampler, cfg.Relay, runner)
		summaries, operations = append(summaries, relay), append(operations, relay)
		c.add("Relay", "relay", relay.Pages())
	}
	if cfg.Feed != nil {
		cfg.OpenFeed = func(context.Context) (Feed, error) { return cfg.Feed, nil }
	}
	if cfg.OpenFeed != nil {
		feed = page.NewFeed(c.sampler, cfg.OpenFeed, cfg.FeedWatcher, runner)
		summaries = append(summaries, feed)
		c.add("Feed", "feed", feed.Pages())
	}
	if relay != nil || broker != nil {
		c.add("Failed", "failed", page.NewFailures(relay, broker, letters, feed).Pages())
	}
	runner.Start(c.sampler)
	c.pages["overview"] = page.Overview(summaries)
	c.add("Operations", "operations", page.NewOperations(c.sampler, operations).Pages())
	c.add("Log of actions", "log", map[string]page.Func{"log": page.Log(c.actions.all)})
	for name, build := range c.pages {
		c.pages[name] = build.Within(sample.Patience)
	}
	return c
}

// add registers a family of pages, of which first is in the navigation.
func (c *Console) add(title, first string, pages map[string]page.Func) {
	c.nav = append(c.nav, view.NavLink{Name: first, Link: view.Link{Text: title, Href: first}})
	for name, f := range pages {
		c.pages[name] = f
	}
}

// Close ends the samples and waits for them. Streams of open pages end with the HTTP server.
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
	if c.cfg.Loopback && !httpserve.LocalName(r.Host) {
		http.Error(w, "This console listens on loopback and answers to localhost and loopback addresses only, not to "+strconv.Quote(r.Host)+".", http.StatusForbidden)
		return
	}
	if err := c.origin.Check(r); err != nil {
		http.Error(w, "A page of another site cannot use the console.", http.StatusForbidden)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if file, ok := strings.CutPrefix(name, "static/"); ok {
		c.serveStatic(w, r, file)
		return
	}
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
	case !ok && r.URL.Query().Has("live"):
		// The page that is open becomes the one that asks for a token.
		h.Set("Content-Type", "text/event-stream")
		_ = send(http.NewResponseController(w), w, event("reload", nil)) // the browser may be gone
		return
	case !ok:
		c.askLogin(w, r, http.StatusUnauthorized, "")
		return
	}
	build := c.pages[name]
	l := c.layout(r, user)
	switch {
	case name == "login":
		redirect(w, "./")
	case build == nil && name == "":
		redirect(w, c.nav[0].Href)
	case build == nil:
		c.fail(w, r, l, &page.Problem{Status: http.StatusNotFound, Text: "There is no such page.", Fix: "The navigation above has all pages."})
	case r.Method == http.MethodPost:
		c.act(w, r, l, user, build)
	case r.URL.Query().Has("live"):
		c.stream(w, r, user, build)
	default:
		c.show(w, r, l, build)
	}
}

// layout is what surrounds a page for a user.
func (c *Console) layout(r *http.Request, u user) *view.Layout {
	return &view.Layout{
		Nav: c.nav, Path: here(r), ReadOnly: u.role != Admin, Login: c.cfg.Access != nil, Who: u.name, Now: time.Now(), Version: c.version,
	}
}

// here is the address of a request relative to the console's root.
func here(r *http.Request) string {
	return (&url.URL{Path: strings.TrimPrefix(r.URL.Path, "/"), RawQuery: r.URL.RawQuery}).String()
}

// redirect leads to a page relative to the present one, which is always at the console's root. So the console needs not know the
// path that it is served under.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// show answers with a page, or with the page that confirms an action.
func (c *Console) show(w http.ResponseWriter, r *http.Request, l *view.Layout, build page.Func) {
	p, err := build(r.Context(), page.Request{Query: r.URL.Query(), Now: l.Now})
	if err != nil {
		c.fail(w, r, l, err)
		return
	}
	if p.Download != nil {
		download(w, p.Download)
		return
	}
	l.Page = p
	if id, err := strconv.Atoi(r.URL.Query().Get("did")); err == nil {
		l.Did = c.actions.get(id)
	}
	if name := r.URL.Query().Get("do"); name != "" {
		l.Confirm = p.Action(name)
		switch {
		case l.ReadOnly:
			c.fail(w, r, l, errReadOnly)
			return
		case l.Confirm == nil:
			c.fail(w, r, l, gone(name))
			return
		case l.Confirm.Preview != nil:
			l.Preview = l.Confirm.Preview(r.Context(), url.Values{})
		}
	}
	c.write(w, r, http.StatusOK, l)
}

// download sends data that may be anything, such as a payload.
func download(w http.ResponseWriter, d *view.Download) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.Name}))
	_, _ = w.Write(d.Data) // the client may be gone
}

var errReadOnly = &page.Problem{
	Status: http.StatusForbidden, Text: "This is a read-only session. Nothing was changed.", Fix: "Sign out, and sign in with the admin token.",
}

func gone(action string) error {
	return &page.Problem{
		Status: http.StatusConflict, Text: "The action " + strconv.Quote(action) + " is not possible now: its object has changed meanwhile, or its source does not answer. Nothing was changed.",
		Fix: "Look at the page again.",
	}
}

// act runs the action that the form's field "do" names. The page is built again for it, so that an action runs only if the page
// offers it at this moment.
func (c *Console) act(w http.ResponseWriter, r *http.Request, l *view.Layout, u user, build page.Func) {
	const maxForm = 1 << 20
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		c.fail(w, r, l, &page.Problem{Status: http.StatusBadRequest, Text: "The form cannot be read. Nothing was changed", Err: err, Fix: "Open the page again, and send at most 1 MiB."})
		return
	}
	if l.ReadOnly {
		c.fail(w, r, l, errReadOnly)
		return
	}
	p, err := build(r.Context(), page.Request{Query: r.URL.Query(), Now: l.Now})
	if err != nil {
		c.fail(w, r, l, err)
		return
	}
	name := r.PostForm.Get("do")
	action := p.Action(name)
	if action == nil {
		c.fail(w, r, l, gone(name))
		return
	}
	if action.Preview != nil && r.PostForm.Has("count") {
		l.Page, l.Confirm, l.Preview = p, action.Filled(r.PostForm), action.Preview(r.Context(), r.PostForm)
		c.write(w, r, http.StatusOK, l)
		return
	}
	// A browser that goes away does not end an action halfway.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actionTimeout)
	defer cancel()
	outcome, err := action.Do(page.WithUser(ctx, u.name), r.PostForm)
	entry := view.Entry{Time: time.Now(), Who: u.name + " from " + u.address, Action: action.Label, Target: action.Target, Count: outcome.Count, Outcome: outcome.Text}
	if err != nil {
		entry.Failed, entry.Outcome = true, err.Error()
	}
	c.sampler.Refresh()
	id := c.actions.add(entry)
	c.log.LogAttrs(ctx, slog.LevelInfo, "console: action", slog.String("who", entry.Who), slog.String("action", entry.Action),
		slog.String("target", entry.Target), slog.Int("count", entry.Count), slog.String("outcome", entry.Outcome))
	if err != nil {
		c.fail(w, r, l, err)
		return
	}
	to, err := url.Parse(outcome.Then)
	if outcome.Then == "" || err != nil {
		to, _ = url.Parse(l.Here()) // it was made from a URL
	}
	q := to.Query()
	q.Set("did", strconv.Itoa(id))
	to.RawQuery = q.Encode()
	redirect(w, to.String())
}

// actionTimeout bounds an action that changes objects one by one in a request. Longer ones are operations.
const actionTimeout = 30 * time.Second

// fail answers with a page that states an error in words.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, l *view.Layout, err error) {
	status := http.StatusInternalServerError
	l.Failure = &view.Failure{Title: "This did not work", Text: err.Error(), Back: l.Here()}
	if p, ok := errors.AsType[*page.Problem](err); ok {
		status, l.Failure.Fix = p.Status, p.Fix
	}
	switch status {
	case http.StatusNotFound:
		l.Failure.Title, l.Failure.Back = "Not found", ""
	case http.StatusForbidden:
		l.Failure.Title = "Not allowed"
	case http.StatusConflict:
		l.Failure.Title = "Not possible now"
	}
	l.Page, l.Confirm = nil, nil
	c.write(w, r, status, l)
}

func (c *Console) write(w http.ResponseWriter, r *http.Request, status int, l *view.Layout) {
	var b bytes.Buffer
	if err := view.Render(&b, l); err != nil {
		c.log.Error("console: page", "path", l.Path, "error", err)
		http.Error(w, "The page cannot be shown; the log has the reason.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	body := b.Bytes()
	if takesGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		body = packed(body)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

func takesGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

func packed(data []byte) []byte {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	_, _ = zip.Write(data)
	_ = zip.Close() // a buffer takes all that is written
	return b.Bytes()
}

type asset struct {
	data, packed []byte
	kind         string
}

// assets reads the static files. Version changes with any of them, so that browsers may keep them for ever.
func assets() (files map[string]asset, version string) {
	files = map[string]asset{}
	sum := sha256.New()
	_ = fs.WalkDir(view.Static, ".", func(name string, d fs.DirEntry, _ error) error { // files in the binary can be read
		if d.IsDir() {
			return nil
		}
		data, _ := view.Static.ReadFile(name)
		_, _ = sum.Write(data)
		kind := map[string]string{".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}[path.Ext(name)]
		files[path.Base(name)] = asset{data, packed(data), kind + "; charset=utf-8"}
		return nil
	})
	return files, hex.EncodeToString(sum.Sum(nil)[:6])
}

func (c *Console) serveStatic(w http.ResponseWriter, r *http.Request, name string) {
	file, ok := c.static[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.URL.RawQuery == c.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", file.kind)
	if takesGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(file.packed)
		return
	}
	_, _ = w.Write(file.data)
}
