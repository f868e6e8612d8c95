package console

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/test/servertest"
)

// Several accounts have a console each, with links between them, one session and a log of actions of each. A handler in front may remove a
// prefix from the paths, whether it states that or not.
func TestContexts(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithConfig(`server_name: n1`))
	source := JetStream(srv.JetStream(t, srv.Connect(t)))
	cfg := Config{Access: Tokens("secret", ""), Log: slog.New(slog.DiscardHandler)}
	s, err := Contexts(cfg, []Context{{"shop", source}, {"bank.eu", source}, {"none", nil}})
	require.NoError(t, err)
	defer s.Close()
	for name, front := range map[string]struct {
		handler http.Handler
		cookie  string
	}{
		"stated":     {httpserve.Mount(t.Context(), "/ops/", s, http.NotFoundHandler()), "/ops/"},
		"not stated": {http.StripPrefix("/ops", s), "/"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(front.handler)
			defer server.Close()
			jar, err := cookiejar.New(nil)
			require.NoError(t, err)
			browser := &http.Client{Jar: jar}
			ask := func(path string, form url.Values) (at, text string, status int) {
				t.Helper()
				answer, err := browser.Get(server.URL + path)
				if form != nil {
					answer, err = browser.PostForm(server.URL+path, form)
				}
				require.NoError(t, err)
				defer answer.Body.Close()
				body, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				return answer.Request.URL.RequestURI(), string(body), answer.StatusCode
			}
			at, text, status := ask("/ops/", nil)
			require.Equal(t, http.StatusUnauthorized, status, text)
			require.Equal(t, "/ops/c/shop/overview", at, "the first is at the root")
			at, text, _ = ask("/ops/c/shop/login", url.Values{"token": {"secret"}, "next": {"log"}})
			require.Equal(t, "/ops/c/shop/log", at)
			require.Contains(t, text, `<a href="../shop/" aria-current="true">shop</a><a href="../bank.eu/">bank.eu</a><a href="../none/">none</a></nav>`)
			require.Contains(t, text, "n1")

			for _, path := range []string{"/ops/c/bank.eu", "/ops/c/bank.eu/"} {
				at, text, status = ask(path, nil)
				require.Equal(t, http.StatusOK, status, "%s: one session is for all", path)
				require.Equal(t, "/ops/c/bank.eu/overview", at)
				require.Contains(t, text, `<a href="../bank.eu/" aria-current="true">`)
			}
			_, text, _ = ask("/ops/c/bank.eu/static/app.js", nil)
			require.Contains(t, text, "function")
			_, _, status = ask("/ops/c/none/consumers", nil)
			require.Equal(t, http.StatusNotFound, status, "it has another source")
			for _, path := range []string{"/ops/c/other/overview", "/ops/overview", "/ops/c/", "/ops/c"} {
				_, text, status = ask(path, nil)
				require.Equal(t, http.StatusNotFound, status, path)
				require.Contains(t, text, "below c/", path)
				require.NotContains(t, text, "bank", path)
			}

			inner, err := url.Parse(server.URL + front.cookie)
			require.NoError(t, err)
			require.Len(t, jar.Cookies(inner), 1)
			at, _, status = ask("/ops/c/bank.eu/logout", url.Values{})
			require.Equal(t, "/ops/c/bank.eu/login", at)
			require.Equal(t, http.StatusUnauthorized, status)
			require.Empty(t, jar.Cookies(inner))
			_, _, status = ask("/ops/c/shop/overview", nil)
			require.Equal(t, http.StatusUnauthorized, status, "the session has ended for all")
		})
	}
}

// The links of alerts lead to the console of their account. Without a public URL there are none.
func TestAlertsOfContexts(t *testing.T) {
	for public, want := range map[string]map[string]bool{
		"https://example.com/ops": {"a https://example.com/ops/c/a/receiver?name=ci": true, "b https://example.com/ops/c/b/receiver?name=ci": true},
		"":                        {"a ": true, "b ": true},
	} {
		target := &alertTarget{requests: make(chan *http.Request, 10), bodies: make(chan string, 10)}
		srv := httptest.NewServer(target)
		t.Cleanup(srv.Close)
		alerts, err := NewAlerts(srv.URL, strings.Repeat("c2Vj", 8), public)
		require.NoError(t, err)
		alerts.every = 50 * time.Millisecond
		relay := &oneReceiver{}
		relay.disabled.Store(true)
		s, err := Contexts(Config{Relay: relay, Alerts: alerts, Log: slog.New(slog.DiscardHandler)}, []Context{{Name: "a"}, {Name: "b"}})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		got := map[string]bool{}
		for _, c := range s.all {
			t.Cleanup(c.sampler.Watch())
		}
		for range want {
			var event map[string]string
			require.NoError(t, json.Unmarshal([]byte(<-target.bodies), &event))
			got[event["environment"]+" "+event["url"]] = true
		}
		require.Equal(t, want, got)
	}
}

func TestContextsRefuse(t *testing.T) {
	for want, names := range map[string][]string{
		"there is no context": nil, `"a" is given twice`: {"a", "b", "a"}, `context "a/b"`: {"a/b"}, `context ""`: {""}, `context ".."`: {".."},
	} {
		var contexts []Context
		for _, name := range names {
			contexts = append(contexts, Context{Name: name})
		}
		_, err := Contexts(Config{}, contexts)
		require.ErrorContains(t, err, want)
	}
}

// The session of one console has the cookie's path of before.
func TestCookieOfOneConsole(t *testing.T) {
	c := Handler(Config{Access: Tokens("secret", ""), Log: slog.New(slog.DiscardHandler)})
	defer c.Close()
	r := httptest.NewRequest(http.MethodPost, "/login", nil)
	r.PostForm = url.Values{"token": {"secret"}}
	answer := httptest.NewRecorder()
	c.ServeHTTP(answer, r)
	require.Equal(t, http.StatusSeeOther, answer.Code)
	require.Empty(t, answer.Result().Cookies()[0].Path)
}
