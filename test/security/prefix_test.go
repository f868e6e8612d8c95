package security

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// prefix is the path that a proxy of a test serves.
const prefix = "/below"

// front is a reverse proxy in front of a system that is started later, with the flags that the system needs for it.
type front struct {
	url   string
	flags []string
	to    atomic.Pointer[url.URL]
	// client has the cookies of a browser, and follows redirects as one does.
	client *http.Client
}

// fronts are the ways in which a proxy may serve a path of its own.
func fronts(t *testing.T) map[string]*front {
	t.Helper()
	fronts := map[string]*front{}
	for name, keeps := range map[string]bool{
		"public-url": false, "public-url, and the proxy keeps the path": true,
		"X-Forwarded-Prefix of a trusted proxy": false,
	} {
		f := &front{}
		var proxy http.Handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(f.to.Load())
			r.SetXForwarded()
			r.Out.Header.Set("X-Forwarded-Prefix", prefix)
		}}
		if !keeps {
			proxy = http.StripPrefix(prefix, proxy)
		}
		mux := http.NewServeMux() // any other path is 404
		mux.Handle(prefix, proxy)
		mux.Handle(prefix+"/", proxy)
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		f.url, f.client = server.URL+prefix, &http.Client{Jar: jar, Timeout: time.Minute}
		f.flags = []string{"--http-public-url", f.url}
		if name == "X-Forwarded-Prefix of a trusted proxy" {
			f.flags = []string{"--http-trusted-proxies", "127.0.0.1"}
		}
		fronts[name] = f
	}
	return fronts
}

func (f *front) before(t *testing.T, s *system) {
	t.Helper()
	to, err := url.Parse(s.url)
	require.NoError(t, err)
	f.to.Store(to)
}

// ask sends a request to a link that was found at another address.
func (f *front) ask(t *testing.T, method, at, link string, header http.Header, body string) (to string, a answer) {
	t.Helper()
	base, err := url.Parse(at)
	require.NoError(t, err)
	found, err := base.Parse(link)
	require.NoError(t, err, link)
	require.True(t, found.String() == f.url || strings.HasPrefix(found.String(), f.url+"/"), "%s of %s leads out of %s", link, at, f.url)
	req, err := http.NewRequestWithContext(t.Context(), method, found.String(), strings.NewReader(body))
	require.NoError(t, err)
	req.Header = header.Clone()
	resp, err := f.client.Do(req)
	require.NoError(t, err, link)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err, link)
	to = resp.Request.URL.String()
	require.True(t, strings.HasPrefix(to, f.url+"/"), "%s of %s ends at %s", link, at, to)
	return to, answer{resp.StatusCode, resp.Header, text}
}

// get follows a link that was found at another address.
func (f *front) get(t *testing.T, at, link string) (to string, a answer) {
	t.Helper()
	to, a = f.ask(t, http.MethodGet, at, link, bearer(adminToken), "")
	require.Equal(t, http.StatusOK, a.status, "%s of %s: %s", link, at, a.body)
	return to, a
}

// document asks for a path below the server that the OpenAPI document names.
func (f *front) document(t *testing.T, path string) {
	t.Helper()
	var document struct{ Servers []struct{ URL string } }
	at, a := f.get(t, f.url, f.url+"/openapi.json")
	require.NoError(t, json.Unmarshal(a.body, &document))
	require.Len(t, document.Servers, 1)
	f.get(t, at, document.Servers[0].URL+path)
}

var linkOfPage = regexp.MustCompile(`(?:href|src|action|hx-get|hx-sse:connect)="([^"#]+)"`)

// walk signs in to a console, follows all links of all its pages, and signs out.
func (f *front) walk(t *testing.T, console string) {
	t.Helper()
	at, a := f.ask(t, http.MethodGet, f.url, console, nil, "")
	require.Equal(t, http.StatusUnauthorized, a.status, "%s", a.body)
	form := http.Header{"Content-Type": {formType}, "Origin": {strings.TrimSuffix(f.url, prefix)}}
	at, a = f.ask(t, http.MethodPost, at, "login", form, url.Values{"token": {adminToken}, "next": {"overview"}}.Encode())
	require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	require.True(t, strings.HasSuffix(at, "/overview"), at)
	seen, asked, pages := map[string]bool{}, map[string]int{}, []string{at}
	for len(pages) > 0 {
		page := pages[0]
		pages = pages[1:]
		at, a := f.ask(t, http.MethodGet, page, "", bearer(adminToken), "")
		if asked[page]++; a.status == http.StatusConflict && asked[page] < 10 {
			// A page offers no actions while its source takes longer than the page waits for it, as on a busy machine.
			pages = append(pages, page)
			continue
		}
		require.Equal(t, http.StatusOK, a.status, "%s: %s", page, a.body)
		if a.header.Get("Content-Type") != "text/html; charset=utf-8" {
			continue
		}
		for _, m := range linkOfPage.FindAllSubmatch(a.body, -1) {
			base, err := url.Parse(at)
			require.NoError(t, err)
			link, err := base.Parse(html.UnescapeString(string(m[1])))
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(link.String(), f.url+"/"), "%s of %s leads out", m[0], at)
			key := link.Path + link.Query().Get("do")
			if !seen[key] && !strings.HasSuffix(key, "/logout") && !link.Query().Has("live") {
				seen[key], pages = true, append(pages, link.String())
			}
		}
	}
	require.Greater(t, len(seen), 8)
	live := &system{url: f.url, client: f.client}
	live.event(t, strings.TrimPrefix(at, f.url)+"?live=1", http.Header{})
	at, a = f.ask(t, http.MethodPost, at, "logout", form, "")
	require.Equal(t, http.StatusUnauthorized, a.status, "%s at %s", a.body, at)
}

// Each path in an answer leads to something below the path of a proxy, whether that removes the path or not.
func TestPathPrefixOfABroker(t *testing.T) {
	for name, f := range fronts(t) {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, append(f.flags, "--console")...)
			f.before(t, b.system)
			for i := range 30 {
				b.must(t, http.MethodPut, fmt.Sprintf("/channel/more-%d", i), formType, "token=channel-secret")
			}
			path, body, header := submit(b, "below")
			at, a := f.ask(t, http.MethodPost, f.url, f.url+path, header, body)
			require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
			f.get(t, at, a.header.Get("Location"))

			channels, next := 0, f.url+"/channels/" // which is redirected to the path without a slash
			for at := f.url; next != ""; {
				var list struct {
					Result []string
					Pages  map[string]string
				}
				at, a = f.get(t, at, next)
				require.NoError(t, json.Unmarshal(a.body, &list))
				for _, channel := range list.Result {
					f.get(t, at, channel)
					channels++
				}
				next = list.Pages["next"]
			}
			require.Equal(t, 32, channels)

			for _, path := range []string{
				"/channel/orders", "/channel/orders/message/below", "/channel/orders/messages-status",
				"/channel/orders/consumer/warehouse",
			} {
				at, a := f.get(t, f.url, f.url+path)
				links := regexp.MustCompile(`"(/[^" ]*)"`).FindAllSubmatch(a.body, -1)
				require.NotEmpty(t, links, "%s", a.body)
				for _, m := range links {
					_, a := f.ask(t, http.MethodGet, at, string(m[1]), bearer(adminToken), "")
					require.Contains(t, []int{http.StatusOK, http.StatusMethodNotAllowed}, a.status, "%s", m[1])
				}
			}
			for path, body := range map[string]string{"/channel/orders/consumer/warehouse/replay": `{"Status":"DEAD"}`, "/dead-jobs/requeue": `{}`} {
				header := bearer(adminToken)
				header.Set("Content-Type", "application/json")
				at, a := f.ask(t, http.MethodPost, f.url, f.url+path, header, body)
				require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
				f.get(t, at, a.header.Get("Location"))
				f.get(t, f.url, f.url+a.header.Get("Location")) // as a client that adds it to its base URL
				if strings.HasPrefix(name, "public-url") {
					b.must(t, http.MethodGet, a.header.Get("Location"), formType, "") // without the proxy
				}
			}
			f.document(t, "/channels")
			f.walk(t, f.url+"/console")
		})
	}
}

// The commands of an operator work below the path of a proxy, and so do signatures of method and path.
func TestPathPrefixOfSignedRequests(t *testing.T) {
	secret := base64.StdEncoding.EncodeToString([]byte("key of the test"))
	for name, f := range fronts(t) {
		if !strings.HasPrefix(name, "public-url") {
			continue // a signature depends on no header
		}
		t.Run(name, func(t *testing.T) {
			b := start(t, "broker", append(f.flags, "--admin-token", adminToken, "--gateway-auth-mode", "hmac", "--gateway-auth-scheme", "v2",
				"--gateway-auth-hmac-shared-secret", secret)...)
			f.before(t, b)
			for _, at := range []string{f.url, b.url} {
				for _, args := range []string{"channels put orders", "channels ls --json"} {
					program, err := command()
					require.NoError(t, err)
					cmd := exec.CommandContext(t.Context(), program, append([]string{"broker"}, strings.Fields(args)...)...)
					cmd.Env = append(os.Environ(), "JETPULL_BROKER_URL="+at, "JETPULL_BROKER_ADMIN_TOKEN="+adminToken,
						"JETPULL_BROKER_GATEWAY_AUTH_HMAC_SHARED_SECRET="+secret)
					out, err := cmd.CombinedOutput()
					require.NoError(t, err, "%s at %s: %s", args, at, out)
					require.Contains(t, string(out), "orders")
				}
			}
		})
	}
}

func TestPathPrefixOfARelay(t *testing.T) {
	for name, f := range fronts(t) {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t, append(f.flags, "--console")...)
			f.before(t, r.system)
			_, a := f.ask(t, http.MethodPut, f.url, f.url+"/v1/receivers/r", bearer(adminToken), `{"post_endpoint":"http://127.0.0.1:9/"}`)
			require.Less(t, a.status, 300, "%s", a.body)
			path, body, header := submit(r, "below")
			_, a = f.ask(t, http.MethodPost, f.url, f.url+path, header, body)
			require.Equal(t, http.StatusAccepted, a.status, "%s", a.body)
			f.document(t, "/v1/messages/shop/below")
			f.walk(t, f.url+"/console")
		})
	}
}

// The console is reached without the slash behind the prefix, too.
func TestPathPrefixOfAConsole(t *testing.T) {
	srv := servertest.RunServer(t)
	for name, f := range fronts(t) {
		t.Run(name, func(t *testing.T) {
			c, _, _ := newConsole(t, append(f.flags, "--nats", srv.URL())...)
			f.before(t, c)
			f.walk(t, f.url)
		})
	}
}

// A prefix of another header than a trusted proxy's, or that is none, leads nobody elsewhere.
func TestForgedPrefix(t *testing.T) {
	for name, path := range map[string]string{"broker": "/channels", "relay": "/openapi.json"} {
		plain, trusting := newSystem(t, name), newSystem(t, name, "--http-trusted-proxies", "127.0.0.1")
		for _, forged := range []string{"/evil", "//evil.example", "https://evil.example"} {
			header := bearer(adminToken)
			header.Set("X-Forwarded-Prefix", forged)
			header.Set("X-Forwarded-Host", "evil.example")
			a := plain.ask(t, http.MethodGet, path, header, "")
			require.Equal(t, http.StatusOK, a.status)
			require.NotContains(t, string(a.body), "evil", forged)
			if forged != "/evil" {
				a = trusting.ask(t, http.MethodGet, path, header, "")
				require.Equal(t, http.StatusBadRequest, a.status, forged)
			}
		}
	}
}

func newSystem(t *testing.T, name string, args ...string) *fixture {
	t.Helper()
	if name == "relay" {
		return newRelay(t, args...)
	}
	return newBroker(t, args...)
}
