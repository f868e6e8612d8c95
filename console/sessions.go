package console

import (
	"cmp"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/tokens"
)

const (
	cookieName  = "jetpull-console"
	sessionTime = 12 * time.Hour
	// wrongTokens is how many wrong tokens an address may send per minute.
	wrongTokens = 10
	// maxSessions is the maximum number of sessions of a token. Beyond it, the oldest of them ends, and those of other tokens stay.
	maxSessions = 1000
	// maxStreams is the maximum number of event streams of a session, and maxTokenStreams that of all sessions of a token.
	maxStreams      = 50
	maxTokenStreams = 200
)

// Tokens returns a [Config].Access for the tokens of an administrator and of a user who may only see pages. An empty token is never valid.
func Tokens(admin, readOnly string) func(token string) User {
	return Users{{Token: admin, Role: Admin}, {Token: readOnly, Role: ReadOnly}}.Of
}

// User is a user of the console, with a token.
type User struct {
	// Name is the name in the log of actions. Empty means that of the role.
	Name, Token string
	Role        Role
}

// Users are the users of a console. An empty token matches no user.
type Users []User

// Of is a [Config].Access function.
func (u Users) Of(token string) User {
	for _, one := range u {
		if tokens.Same(token, one.Token) {
			return one
		}
	}
	return User{}
}

// sessions holds the sessions of users who have signed in.
type sessions struct {
	access func(token string) User
	header string // contains the name of the user in requests from a trusted proxy; empty means none
	logins *httpserve.Logins

	mu  sync.Mutex
	all map[string]session
	// streams counts the open event streams. Without Access, all have an empty token and session.
	streams map[owner]int
}

// owner identifies the owner of an open stream.
type owner struct{ token, session string }

// session stores the token instead of the role, because the token is checked again with each request.
type session struct {
	token string
	ends  time.Time
}

// user is the author of a request.
type user struct {
	role    Role
	name    string
	address string
}

func newSessions(cfg Config, log *slog.Logger) *sessions {
	return &sessions{
		access: cfg.Access, header: cfg.UserHeader, logins: httpserve.NewLogins(wrongTokens, log, func() {}),
		all: map[string]session{}, streams: map[owner]int{},
	}
}

// user returns the user of a request. ok is false if the request has no session, or if the session's token is no longer valid.
func (s *sessions) user(r *http.Request) (u user, ok bool) {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	u = user{Admin, "anybody", address}
	if s.access != nil {
		cookie, err := r.Cookie(cookieName)
		if err != nil {
			return user{}, false
		}
		s.mu.Lock()
		found, ok := s.all[cookie.Value]
		s.mu.Unlock()
		if !ok || time.Now().After(found.ends) {
			return user{}, false
		}
		known := s.access(found.token)
		if known.Role == NoAccess {
			return user{}, false
		}
		u.role, u.name = known.Role, cmp.Or(known.Name, map[Role]string{Admin: "admin", ReadOnly: "reader"}[known.Role])
	}
	if s.header != "" && httpserve.Proxied(r) {
		u.name = cmp.Or(r.Header.Get(s.header), u.name)
	}
	u.name = strings.ToValidUTF8(u.name[:min(len(u.name), maxUserName)], "")
	return u, true
}

// maxUserName is the maximum length of a user's name, in bytes.
const maxUserName = 200

// open creates a session for a token. Its ID has more than 128 random bits.
func (s *sessions) open(token string) (id string) {
	id = rand.Text()
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var same []string
	for other, one := range s.all {
		if now.After(one.ends) {
			delete(s.all, other)
		} else if one.token == token {
			same = append(same, other)
		}
	}
	if len(same) >= maxSessions {
		delete(s.all, slices.MinFunc(same, func(a, b string) int { return s.all[a].ends.Compare(s.all[b].ends) }))
	}
	s.all[id] = session{token, now.Add(sessionTime)}
	return id
}

// stream counts the event stream that a request opens, until done is called. ok is false if there are too many.
func (s *sessions) stream(r *http.Request) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of owner
	if cookie, err := r.Cookie(cookieName); err == nil && s.access != nil {
		of = owner{s.all[cookie.Value].token, cookie.Value}
	}
	ofToken := 0
	for other, n := range s.streams {
		if other.token == of.token {
			ofToken += n
		}
	}
	if ofToken >= maxTokenStreams || of.session != "" && s.streams[of] >= maxStreams {
		return nil, false
	}
	s.streams[of]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streams[of]--; s.streams[of] == 0 {
			delete(s.streams, of)
		}
	}, true
}

var errWrongToken = httpserve.Refuse(http.StatusForbidden, "forbidden", "wrong token")

// maxForm is the maximum size of a form of somebody who has not signed in, in bytes.
const maxForm = 16 << 10

// login creates a session for a valid token.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if c.cfg.Access == nil {
		redirect(w, "./")
		return
	}
	token := r.PostFormValue("token")
	if c.cfg.Access(token).Role == NoAccess {
		wrong := httpserve.Describe(c.sessions.logins.Refuse(r, token, errWrongToken), nil)
		for name, value := range wrong.Header {
			w.Header().Set(name, value)
		}
		c.askLogin(w, r, wrong.Status, "This token is wrong. The system's configuration has the right one.")
		return
	}
	http.SetCookie(w, cookie(r, cookieName, c.sessions.open(token), c.cookiePath(r), int(sessionTime/time.Second)))
	redirect(w, c.local(r.PostFormValue("next")))
}

// local returns a URL of a page of the console. Otherwise a link could lead a user to another site after signing in.
func (c *Console) local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || c.pages[u.Path] == nil {
		return "./"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

// cookie returns a cookie that only the console reads. It expires after some seconds, or now if seconds is below 0.
func cookie(r *http.Request, name, value, path string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: path, MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: httpserve.Secure(r),
	}
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	if session, err := r.Cookie(cookieName); err == nil {
		c.sessions.mu.Lock()
		delete(c.sessions.all, session.Value)
		c.sessions.mu.Unlock()
	}
	http.SetCookie(w, cookie(r, cookieName, "", c.cookiePath(r), -1))
	redirect(w, "login")
}

// askLogin responds with the form for a token, which leads to the requested page.
func (c *Console) askLogin(w http.ResponseWriter, r *http.Request, status int, problem string) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm) // files in a form would be written to disk
	c.write(w, r, status, "login", view.Login{Problem: problem, Next: c.local(cmp.Or(r.PostFormValue("next"), here(r)))})
}
