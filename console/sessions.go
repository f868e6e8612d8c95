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
	// wrongTokens is how many wrong tokens an address may show in a minute.
	wrongTokens = 10
	// maxSessions bounds the sessions of a token. The oldest of them ends when there are more, and those of other tokens stay.
	maxSessions = 1000
	// maxStreams bounds the streams of events of a session, and maxTokenStreams those of all sessions of a token.
	maxStreams      = 50
	maxTokenStreams = 200
)

// Tokens returns an Access for the token of an administrator and one that shows pages alone. An empty token is nobody's.
func Tokens(admin, readOnly string) func(token string) User {
	return Users{{Token: admin, Role: Admin}, {Token: readOnly, Role: ReadOnly}}.Of
}

// User is a user of the console, with a token.
type User struct {
	// Name is in the log of actions. An empty one is the role.
	Name, Token string
	Role        Role
}

// Users are the users of a console. No user has an empty token.
type Users []User

// Of is a [Config.Access].
func (u Users) Of(token string) User {
	for _, one := range u {
		if tokens.Same(token, one.Token) {
			return one
		}
	}
	return User{}
}

// sessions are the users that have shown a token.
type sessions struct {
	access func(token string) User
	header string // has the name of a user, in requests that came through a trusted proxy; empty: none has
	logins *httpserve.Logins

	mu  sync.Mutex
	all map[string]session
	// streams count the open streams of events. Without Access all are of one token, and of no session.
	streams map[owner]int
}

// owner is whose an open stream is.
type owner struct{ token, session string }

// session remembers the token rather than the role: the token is checked again with each request.
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

// user finds the user of a request. It is false where the request has no session, or where the session's token is no longer valid.
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

// maxUserName bounds the name of a user, in bytes.
const maxUserName = 200

// open makes a session for a token. Its ID has over 128 random bits.
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

// stream counts a stream of events that a request opens, until done is called. It is false if there are too many.
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

// maxForm bounds what somebody can send who has not signed in.
const maxForm = 16 << 10

// login opens a session for a token that is right.
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

// local is the address of a page of the console: another one would let a link lead a user elsewhere after the sign-in.
func (c *Console) local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || c.pages[u.Path] == nil {
		return "./"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

// cookie is one that only the console reads. It ends after some seconds; below 0: now.
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

// askLogin answers with the form for a token. The page that was asked for follows it.
func (c *Console) askLogin(w http.ResponseWriter, r *http.Request, status int, problem string) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm) // files of a form would be written to the disk
	c.write(w, r, status, "login", view.Login{Problem: problem, Next: c.local(cmp.Or(r.PostFormValue("next"), here(r)))})
}
