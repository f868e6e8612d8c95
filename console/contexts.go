package console

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// Context is one of the NATS accounts that [Contexts] shows.
type Context struct {
	// Name is the environment of the account's console, and part of its path. It consists of letters, digits, and ._- after the first character.
	Name string
	NATS NATS
}

// Consoles is an [http.Handler] that serves a console for each of several NATS accounts. It is safe for concurrent use.
type Consoles struct {
	first string // the name of the first account
	all   map[string]*Console
}

// among is the place of a console among several. It is empty for a single console.
type among struct {
	path  string // of the console, below the common path
	links []view.Link
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Contexts returns a console for each of several NATS accounts, at c/NAME/, with links to the others. The root redirects to the first. cfg configures
// all of them, without NATS and Environment. A session in one console is valid in all.
func Contexts(cfg Config, contexts []Context) (*Consoles, error) {
	if len(contexts) == 0 {
		return nil, errors.New("there is no context: give one at least")
	}
	s := &Consoles{first: contexts[0].Name, all: map[string]*Console{}}
	var links []view.Link
	for _, one := range contexts {
		link := view.Link{Text: one.Name, Href: "../" + one.Name + "/"}
		switch {
		case !contextName.MatchString(one.Name):
			return nil, fmt.Errorf("context %q: its name is part of a path: give it one of at most 100 letters, digits and ._-, with a letter or digit first",
				one.Name)
		case slices.Contains(links, link):
			return nil, fmt.Errorf("context %q is given twice: give each another name", one.Name)
		}
		links = append(links, link)
	}
	log := cmp.Or(cfg.Log, slog.Default())
	sessions := newSessions(cfg, log)
	for _, one := range contexts {
		cfg.NATS, cfg.Environment, cfg.Log = one.NATS, one.Name, log.With("context", one.Name)
		s.all[one.Name] = newConsole(cfg, sessions, among{"/c/" + one.Name, links})
	}
	return s, nil
}

// Close closes all consoles: see [Console.Close].
func (s *Consoles) Close() {
	for _, c := range s.all {
		c.Close()
	}
}

// ServeHTTP implements http.Handler.
func (s *Consoles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = httpserve.Within(r, func(r *http.Request) bool { return s.of(r) != nil })
	switch c := s.of(r); {
	case strings.TrimPrefix(r.URL.Path, "/") == "":
		redirect(w, httpserve.Here(r, "c/"+s.first+"/")) // the URL may lack the trailing slash
	case c == nil:
		http.Error(w, "There is no such page. The consoles are below c/, by the names of their contexts.", http.StatusNotFound)
	case r.URL.Path == c.among.path:
		redirect(w, c.cfg.Environment+"/")
	default:
		http.StripPrefix(c.among.path, c).ServeHTTP(w, r)
	}
}

// of returns the console for a request, or nil.
func (s *Consoles) of(r *http.Request) *Console {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/c/"), "/")
	return s.all[name]
}

// cookiePath returns the path of a session's cookie. Empty means the console's own path. The session of several consoles is for their common path, or
// for the whole host if a proxy in front does not report its prefix.
func (c *Console) cookiePath(r *http.Request) string {
	if c.among.path == "" {
		return ""
	}
	return httpserve.Link(r, "/")
}
