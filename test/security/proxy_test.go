package security

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// clientHeader is how a request of a test names the client from which the proxy has it.
const clientHeader = "X-Test-Client"

// behind is s as the clients of a reverse proxy see it: below a path that the proxy takes away, and each from its own address.
func behind(t *testing.T, s *system) *system {
	t.Helper()
	to, err := url.Parse(s.url)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.SetXForwarded()
		if client := r.In.Header.Get(clientHeader); client != "" {
			r.Out.Header.Set("X-Forwarded-For", client)
		}
	}}
	server := httptest.NewServer(http.StripPrefix("/below", proxy))
	t.Cleanup(server.Close)
	return &system{name: s.name, url: server.URL + "/below", client: s.client}
}

func from(client string, header http.Header) http.Header {
	header = header.Clone()
	header.Set(clientHeader, client)
	return header
}

// Broker and relay behind a reverse proxy with a path of its own: the limit of wrong tokens is of a client, and not of the proxy.
func TestClientsBehindATrustedProxy(t *testing.T) {
	t.Parallel()
	for name, route := range map[string]string{"broker": "/producers", "relay": "/v1/receivers"} {
		limited := []string{"--admin-token", adminToken, "--admin-max-failed-logins-per-minute", "5"}
		trusting := behind(t, start(t, name, append(limited, "--http-trusted-proxies", "127.0.0.1,192.0.2.0/24")...))
		plain := behind(t, start(t, name, limited...))
		guess := func(s *system, client string) (limited bool) {
			return guesses(func() bool {
				a := s.ask(t, http.MethodGet, route, from(client, bearer("guess")), "")
				assert.Contains(t, []int{http.StatusUnauthorized, http.StatusTooManyRequests}, a.status, "%s: %s", name, a.body)
				return a.status == http.StatusTooManyRequests
			})
		}
		// Only the last address is not the client's own invention.
		require.True(t, guess(trusting, "203.0.113.9, 192.0.2.1"), name)
		for _, s := range []*system{trusting, plain} {
			require.Equal(t, http.StatusUnauthorized, s.ask(t, http.MethodGet, route, from("203.0.113.10", bearer("guess")), "").status, name)
			require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, route, from("203.0.113.9", bearer(adminToken)), "").status, "%s: the right token", name)
		}
		require.True(t, guess(plain, "203.0.113.9"), "%s: a header that anybody can send", name)
		require.Equal(t, http.StatusOK, plain.ask(t, http.MethodGet, route, from("203.0.113.10", bearer(adminToken)), "").status, "%s: the right token",
			name)
	}
}

// guesses makes 22 guesses at a time, since the answer to each takes a second, and reports whether one was refused unread. That is twice the largest
// limit here and more, so that a minute can end meanwhile.
func guesses(guess func() (limited bool)) bool {
	var limited atomic.Bool
	var all sync.WaitGroup
	for range 22 {
		all.Go(func() {
			if guess() {
				limited.Store(true)
			}
		})
	}
	all.Wait()
	return limited.Load()
}

// A console that trusts its proxy limits the wrong tokens of a client, and not of all users.
func TestConsoleBehindATrustedProxy(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	c, _, _ := newConsole(t, "--nats", srv.URL(), "--http-trusted-proxies", "127.0.0.1")
	through := behind(t, c)
	guess := func(client string) int {
		return through.ask(t, http.MethodPost, "/login", from(client, http.Header{"Content-Type": {formType}}), "token=guess").status
	}
	require.True(t, guesses(func() bool { return guess("203.0.113.9") == http.StatusTooManyRequests }))
	require.Equal(t, http.StatusForbidden, guess("203.0.113.10"))
}

// submit is the request that stores a message with a body, by system.
func submit(f *fixture, id string) (path, body string, header http.Header) {
	if f.name == "relay" {
		return "/v1/messages", fmt.Sprintf(`{"source_id":"shop","message_id":%q,"receiver":"r","payload":"x"}`, id), bearer(adminToken)
	}
	return "/channel/orders/broadcast", "x", http.Header{
		"X-Broker-Channel-Token": {"channel-secret"}, "X-Broker-Producer-Id": {"shop"}, "X-Broker-Producer-Token": {"producer-secret"},
		"X-Broker-Message-Id": {id},
	}
}

// Proxies send HTTP/1.0, with and without a Host, and Expect: 100-continue, as few clients do. Each of these requests stores its message.
func TestRequestsThatProxiesSend(t *testing.T) {
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		stored := map[string]int{"broker": http.StatusCreated, "relay": http.StatusAccepted}[name]
		head := func(proto, id, more string) (string, string) {
			path, body, header := submit(f, id)
			var text strings.Builder
			fmt.Fprintf(&text, "POST %s %s\r\n%sContent-Length: %d\r\n", path, proto, more, len(body))
			require.NoError(t, header.Write(&text))
			return text.String() + "\r\n", body
		}
		for id, more := range map[string]string{
			"old": "", "old-host": "Host: localhost\r\n",
			"old-alive": "Host: localhost\r\nConnection: keep-alive\r\n",
		} {
			text, body := head("HTTP/1.0", id, more)
			conn := bufio.NewReader(f.raw(t, text+body))
			resp, err := http.ReadResponse(conn, nil)
			require.NoError(t, err, "%s: %s", name, id)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, stored, resp.StatusCode, "%s: %s: %s", name, id, got)
			require.Empty(t, resp.TransferEncoding, "HTTP/1.0 has no chunks")
		}

		text, body := head("HTTP/1.1", "expect", "Host: localhost\r\nExpect: 100-continue\r\n")
		conn := f.raw(t, text)
		lines := bufio.NewReader(conn)
		resp, err := http.ReadResponse(lines, nil)
		require.NoError(t, err, name)
		require.Equal(t, http.StatusContinue, resp.StatusCode, name)
		_, err = io.WriteString(conn, body)
		require.NoError(t, err)
		resp, err = http.ReadResponse(lines, nil)
		require.NoError(t, err, name)
		require.Equal(t, stored, resp.StatusCode, name)

		// A request that is refused gets its answer in place of 100, and the body is not waited for.
		text, _ = head("HTTP/1.1", "refused", "Host: localhost\r\nExpect: 100-continue\r\n")
		text = strings.NewReplacer(adminToken, "wrong", "channel-secret", "wrong").Replace(text)
		resp, err = http.ReadResponse(bufio.NewReader(f.raw(t, text)), nil)
		require.NoError(t, err, name)
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, resp.StatusCode, name)
	}
}

// The console below the path of a proxy that it does not know: the links of its pages stay below it, and events come as they are sent. All users have
// the address of the proxy, so wrong tokens of one make those of others wait, and never the right one.
func TestConsoleBelowAPath(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	c, _, _ := newConsole(t, "--nats", srv.URL())
	through := behind(t, c)
	sign := func(token string) answer {
		return through.ask(t, http.MethodPost, "/login", http.Header{"Content-Type": {formType}}, url.Values{"token": {token}}.Encode())
	}
	require.True(t, guesses(func() bool { return sign("guess").status == http.StatusTooManyRequests }))
	a := sign(adminToken)
	require.Equal(t, http.StatusSeeOther, a.status, string(a.body))
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	session := http.Header{"Cookie": {cookie}}
	base, err := url.Parse(through.url + "/login")
	require.NoError(t, err)
	to, err := base.Parse(a.header.Get("Location"))
	require.NoError(t, err)
	pages := map[string]bool{to.String(): true}
	text := through.ask(t, http.MethodGet, "/overview", session, "").body
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"#]+)"`).FindAllSubmatch(text, -1) {
		link, err := base.Parse(string(m[1]))
		require.NoError(t, err)
		pages[link.String()] = true
	}
	require.Greater(t, len(pages), 5)
	for page := range pages {
		path, ok := strings.CutPrefix(page, through.url)
		require.True(t, ok, "%s leads out of the path", page)
		a := through.ask(t, http.MethodGet, path, session, "")
		require.Contains(t, []int{http.StatusOK, http.StatusSeeOther}, a.status, "%s: %s", page, a.body)
	}
	through.event(t, "/overview?live=1", session)
}
