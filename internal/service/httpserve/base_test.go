package httpserve

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPublicURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://example.com": "https://example.com", "https://example.com/": "https://example.com", "http://h:8080/a/b/": "http://h:8080/a/b",
		"http://[::1]:80/v1/x:y@z": "http://[::1]:80/v1/x:y@z",
	} {
		got, err := ParsePublicURL(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got.String())
	}
	none, err := ParsePublicURL("")
	require.NoError(t, err)
	require.Nil(t, none)
	for _, text := range []string{
		"example.com", "/broker", "//example.com/broker", "ftp://h/", "https://", "https://:80", "https://h:0", "https://h:65536", "https://h:x",
		"https://user:secret@h/", "https://h/?", "https://h/?q",
		"https://h/#f", "https://h//b", "https://h/a//b", "https://h/a/../b", "https://h/./b", "https://h/a%2Fb", "https://h/ä", "https://h/a b",
		"https://h/a;b", "https://h/" + strings.Repeat("a", prefixMost), "https://h/a\n",
	} {
		_, err := ParsePublicURL(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
}

// The base of a request is the public URL, or else what a trusted proxy says, and nobody else.
func TestBaseOfARequest(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies([]string{"10.0.0.7"})
	require.NoError(t, err)
	public, err := ParsePublicURL("https://example.com/public")
	require.NoError(t, err)
	const proxy, other = "10.0.0.7:1", "10.0.0.8:1"
	for _, tt := range []struct {
		public *url.URL
		peer   string
		prefix []string
		status int
		want   string // of a link to /x
	}{
		{nil, other, nil, 200, "/x"},
		{nil, other, []string{"/evil"}, 200, "/x"},
		{nil, other, []string{"//evil"}, 200, "/x"},
		{nil, proxy, nil, 200, "/x"},
		{nil, proxy, []string{""}, 200, "/x"},
		{nil, proxy, []string{"/"}, 200, "/x"},
		{nil, proxy, []string{"/below"}, 200, "/below/x"},
		{nil, proxy, []string{"/below/"}, 200, "/below/x"},
		{nil, proxy, []string{"/a/b"}, 200, "/a/b/x"},
		{nil, proxy, []string{"/a, /b"}, 200, "/a/b/x"},
		{nil, proxy, []string{"/a", "/b"}, 200, "/a/b/x"},
		{nil, proxy, []string{"//evil.example"}, 400, ""},
		{nil, proxy, []string{"/a//b"}, 400, ""},
		{nil, proxy, []string{"below"}, 400, ""},
		{nil, proxy, []string{"/a, b"}, 400, ""},
		{nil, proxy, []string{"https://evil.example/"}, 400, ""},
		{nil, proxy, []string{"/a/../b"}, 400, ""},
		{nil, proxy, []string{"/a/."}, 400, ""},
		{nil, proxy, []string{`/a"b`}, 400, ""},
		{nil, proxy, []string{"/a?b"}, 400, ""},
		{nil, proxy, []string{"/a%2e%2e/b"}, 400, ""},
		{nil, proxy, []string{`/\evil`}, 400, ""},
		{nil, proxy, []string{"/a\r\nSet-Cookie: b"}, 400, ""},
		{nil, proxy, []string{"/" + strings.Repeat("a", prefixMost-1)}, 200, "/" + strings.Repeat("a", prefixMost-1) + "/x"},
		{nil, proxy, []string{"/" + strings.Repeat("a", prefixMost)}, 400, ""},
		{nil, proxy, []string{"/" + strings.Repeat("a", prefixMost-1), "/b"}, 400, ""},
		{public, other, nil, 200, "/public/x"},
		{public, other, []string{"/evil"}, 200, "/public/x"},
		{public, proxy, []string{"/below"}, 200, "/public/x"},
	} {
		h := based(tt.public, proxies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, Link(r, "/x")) }))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tt.peer
		r.Header["X-Forwarded-Prefix"] = tt.prefix
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, tt.status, w.Code, "%+v", tt)
		if tt.status == http.StatusOK {
			require.Equal(t, tt.want, w.Body.String(), "%+v", tt)
		} else {
			require.Contains(t, w.Body.String(), "X-Forwarded-Prefix")
		}
	}
}

// requestAt is a request as a system with a public URL gets it.
func requestAt(t *testing.T, public, method, target string, header ...string) *http.Request {
	t.Helper()
	u, err := ParsePublicURL(public)
	require.NoError(t, err)
	proxies, err := ParseProxies([]string{"192.0.2.1"}) // that of httptest
	require.NoError(t, err)
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	var got *http.Request
	based(u, proxies, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r })).ServeHTTP(httptest.NewRecorder(), r)
	return got
}

// A path may have the prefix, which a proxy has left there or a client has put there twice. One that has a route as it is stays.
func TestWithinAPrefix(t *testing.T) {
	t.Parallel()
	routed := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/") }
	for target, want := range map[string]string{
		"/v1/messages": "/v1/messages", "/below/v1/a%2Fb?q=1": "/v1/a%2Fb?q=1", "/below": "/", "/below/": "/", "/belowx": "/belowx",
		"/x/below/v1": "/x/below/v1", "/below/below/v1/": "/v1/",
	} {
		r := requestAt(t, "https://example.com/below", http.MethodGet, target)
		require.Equal(t, want, Within(r, routed).URL.RequestURI(), target)
		require.Equal(t, target, r.URL.RequestURI(), "the request is not changed")
		require.Equal(t, "/below"+target, PublicTarget(r))
	}
	for target, want := range map[string]string{"/v1/messages": "/v1/messages", "/v1/v1/messages": "/v1/v1/messages", "/v1": "/"} {
		require.Equal(t, want, Within(requestAt(t, "https://example.com/v1", http.MethodGet, target), routed).URL.RequestURI(), target)
	}
	plain := httptest.NewRequest(http.MethodGet, "/below/v1", nil)
	require.Same(t, plain, Within(plain, routed))
	require.Equal(t, "/below/v1", PublicTarget(plain))
	require.Equal(t, "page", Here(plain, "page"))
	require.Equal(t, "/below/page", Here(requestAt(t, "https://example.com/below", http.MethodGet, "/"), "page"))
}

// A page of the public host is no other site, and that host is the listener's own name. A header alone makes no name.
func TestBrowserAtThePublicURL(t *testing.T) {
	t.Parallel()
	const public = "https://example.com/below"
	require.True(t, OtherSite(requestAt(t, "", http.MethodPost, "http://127.0.0.1:8080/", "Origin", "https://example.com")))
	require.False(t, OtherSite(requestAt(t, public, http.MethodPost, "http://127.0.0.1:8080/", "Origin", "https://example.com")))
	require.False(t, OtherSite(requestAt(t, public, http.MethodPost, "http://127.0.0.1:8080/", "Origin", "http://127.0.0.1:8080")))
	require.False(t, OtherSite(requestAt(t, "", http.MethodPost, "http://127.0.0.1:8080/", "Origin", "https://example.com", "X-Forwarded-Host",
		"example.com")))
	require.True(t, OtherSite(requestAt(t, public, http.MethodPost, "http://127.0.0.1:8080/", "Origin", "https://other.example")))
	require.True(t, OtherSite(requestAt(t, public, http.MethodPost, "http://127.0.0.1:8080/", "Origin", "https://example.com", "Sec-Fetch-Site",
		"cross-site")))
	untrusted := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/", nil)
	untrusted.Header.Set("Origin", "https://example.com")
	untrusted.Header.Set("X-Forwarded-Host", "example.com")
	require.True(t, OtherSite(untrusted))

	require.True(t, OwnName(requestAt(t, public, http.MethodGet, "http://example.com/")))
	require.True(t, OwnName(requestAt(t, public, http.MethodGet, "http://localhost/")))
	require.False(t, OwnName(requestAt(t, public, http.MethodGet, "http://other.example/")))
	require.False(t, OwnName(requestAt(t, "", http.MethodGet, "http://example.com/", "X-Forwarded-Host", "example.com")))

	require.True(t, Secure(requestAt(t, public, http.MethodGet, "/")))
	require.True(t, Secure(requestAt(t, "", http.MethodGet, "/", "X-Forwarded-Proto", "https")))
	require.False(t, Secure(requestAt(t, "http://example.com", http.MethodGet, "/")))
	direct := httptest.NewRequest(http.MethodGet, "/", nil)
	direct.TLS = &tls.ConnectionState{}
	require.True(t, Secure(direct))
}

func TestDocumentNamesItsServer(t *testing.T) {
	t.Parallel()
	document := []byte("{\n \"openapi\": \"3.1.0\"\n}")
	require.Equal(t, document, describeBase(httptest.NewRequest(http.MethodGet, "/", nil), document))
	require.JSONEq(t, `{"openapi":"3.1.0","servers":[{"url":"https://example.com/below"}]}`,
		string(describeBase(requestAt(t, "https://example.com/below", http.MethodGet, "/"), document)))
	require.JSONEq(t, `{"openapi":"3.1.0","servers":[{"url":"/a"}]}`,
		string(describeBase(requestAt(t, "", http.MethodGet, "/", "X-Forwarded-Prefix", "/a"), document)))
}
