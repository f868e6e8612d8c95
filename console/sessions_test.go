package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASessionLastsTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(Config{Access: func(string) User { return User{Role: Admin} }}, slog.New(slog.DiscardHandler))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: s.open("token")})
		time.Sleep(12 * time.Hour)
		_, ok := s.user(r)
		require.True(t, ok)
		time.Sleep(time.Second)
		_, ok = s.user(r)
		require.False(t, ok)
	})
}

// Sign-ins end the oldest session of the same token, and none of another one.
func TestManySignIns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(Config{Access: Tokens("a", "r")}, slog.New(slog.DiscardHandler))
		with := func(id string) bool {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.AddCookie(&http.Cookie{Name: cookieName, Value: id})
			_, ok := s.user(r)
			return ok
		}
		admin := s.open("a")
		first := s.open("r")
		for range 10 * maxSessions {
			time.Sleep(time.Millisecond)
			s.open("r")
		}
		require.True(t, with(admin))
		require.False(t, with(first))
		require.Len(t, s.all, maxSessions+1)
	})
}

// The streams of events of a session and of a token are bounded. Those of another token go on, and a page that is closed lets another one open.
func TestManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := &changing{}
		c := Handler(Config{Relay: relay, Access: Tokens("a", "r"), Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		var streams sync.WaitGroup
		open := func(session, page string) (*httptest.ResponseRecorder, func()) {
			ctx, end := context.WithCancel(t.Context())
			answer := httptest.NewRecorder()
			streams.Go(func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+page, nil)
				r.AddCookie(&http.Cookie{Name: cookieName, Value: session})
				c.ServeHTTP(answer, r)
			})
			synctest.Wait()
			return answer, end
		}
		reader, admin := c.sessions.open("r"), c.sessions.open("a")
		var ends []func()
		for i := range maxStreams {
			answer, end := open(reader, "failed?live=1&source="+strconv.Itoa(i))
			require.Equal(t, http.StatusOK, answer.Code)
			ends = append(ends, end)
		}
		require.Len(t, c.renders.all, maxStreams)
		refused, _ := open(reader, "failed?live=1")
		require.Equal(t, http.StatusTooManyRequests, refused.Code)
		require.Contains(t, refused.Body.String(), "Too many pages are open")
		ends[0]()
		synctest.Wait()
		for n := maxStreams - 1; n < maxTokenStreams; n++ {
			answer, end := open(c.sessions.open("r"), "failed?live=1")
			require.Equal(t, http.StatusOK, answer.Code)
			ends = append(ends, end)
		}
		refused, _ = open(c.sessions.open("r"), "failed?live=1")
		require.Equal(t, http.StatusTooManyRequests, refused.Code)
		answer, end := open(admin, "failed?live=1")
		require.Equal(t, http.StatusOK, answer.Code)
		for _, end := range append(ends, end) {
			end()
		}
		streams.Wait()
		require.Empty(t, c.sessions.streams)
	})
}

// A parameter that no page has is dropped: pages copy the query into their links. Pages that differ in it share a render.
func TestUnknownParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Handler(Config{Relay: &receivers{}, Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		synctest.Wait()
		get := func(ctx context.Context, page string) *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			c.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+page, nil))
			return answer
		}
		text := get(t.Context(), "relay?q=shop-&x="+strings.Repeat("junk", 5000)+"&q=junk&sort=name").Body.String()
		require.Contains(t, text, "q=shop-")
		require.NotContains(t, text, "junk")
		require.Equal(t, http.StatusRequestURITooLong, get(t.Context(), "relay?q="+strings.Repeat("a", maxURL)).Code)
		ctx, end := context.WithCancel(t.Context())
		var streams sync.WaitGroup
		for i := range 10 {
			streams.Go(func() { get(ctx, "relay?live=1&x="+strconv.Itoa(i)) })
		}
		synctest.Wait()
		require.Len(t, c.renders.all, 1)
		end()
		streams.Wait()
	})
}

func TestTokens(t *testing.T) {
	for token, want := range map[string]Role{"a": Admin, "r": ReadOnly, "x": NoAccess, "": NoAccess} {
		require.Equal(t, want, Tokens("a", "r")(token).Role, token)
		require.Equal(t, NoAccess, Tokens("", "")(token).Role, token)
	}
}

// An action is logged with the name of its author. Nobody but a trusted proxy can state another one.
func TestUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := Users{{Name: "ada", Token: "a", Role: Admin}, {Token: "r", Role: ReadOnly}, {Name: "nobody", Role: Admin}}
		c := Handler(Config{Relay: &receivers{}, Access: users.Of, UserHeader: "X-User", Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		synctest.Wait()
		require.Equal(t, NoAccess, users.Of("").Role)
		use := func(token, method, page string, form url.Values) string {
			r := httptest.NewRequestWithContext(t.Context(), method, "/"+page, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("X-User", "mallory")
			r.AddCookie(&http.Cookie{Name: cookieName, Value: c.sessions.open(token)})
			answer := httptest.NewRecorder()
			c.ServeHTTP(answer, r)
			return answer.Body.String()
		}
		use("a", http.MethodPost, "receiver?name=shop-a1", url.Values{"do": {"pause"}})
		log := use("r", http.MethodGet, "log", nil)
		require.Contains(t, log, "ada from 192.0.2.1")
		require.Contains(t, log, "<span>reader</span>")
		require.NotContains(t, log, "mallory")
	})
}

// Somebody who has not signed in cannot have the console read, or store, what he sends.
func TestUploadsWithoutASession(t *testing.T) {
	c := Handler(Config{Relay: &changing{}, Access: Tokens("a", "r"), Log: slog.New(slog.DiscardHandler)})
	defer c.Close()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		form := "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n" + strings.Repeat("x", 1<<20)
		body := strings.NewReader(form)
		r := httptest.NewRequest(method, "/overview", body)
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		require.Equal(t, http.StatusUnauthorized, w.Code)
		require.Greater(t, body.Len(), len(form)-3*maxForm, "the rest was not read")
	}
}
