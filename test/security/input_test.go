package security

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// hostileIDs are path segments as they are sent.
var hostileIDs = []string{
	"..%2f..%2f..%2fetc%2fpasswd", "%2e%2e", "%2e%2e%2f", "..%5c..%5cwindows", "%00", "a%00b", "%0d%0aX-Evil:%201", "%1b%5b31m", "%c2%9b31m",
	"%c2%9d0;x%07",
	"%7f", "%ff%fe", "*", "%3e", "a.%3e", "a.*.b", "%24SYS", "%24JS.API", "%20", "+", "%25", "%2525", "%E2%80%AE", "%22%3E%3Cscript%3E", "%27%3B--",
	strings.Repeat("a", 5000),
}

// clean fails where an answer has something that a terminal or another parser would obey.
func clean(t *testing.T, what string, a answer) {
	t.Helper()
	require.Less(t, a.status, 500, "%s: %s", what, a.body)
	require.Empty(t, a.header.Get("X-Evil"), what)
	require.NotContains(t, string(a.body), "root:x:0:0", what)
	if !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") && !strings.HasPrefix(a.header.Get("Content-Type"), "text/") {
		return // a payload
	}
	require.True(t, utf8.Valid(a.body), what)
	for _, r := range string(a.body) {
		require.False(t, unicode.IsControl(r) && r != '\n' && r != '\t', "%s: control character %U in %q", what, r, a.body)
	}
}

// Every parameter of every route takes any ID, or refuses it.
func TestHostileIDsOnEveryRoute(t *testing.T) {
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		probes := 0
		for _, o := range f.operations(t) {
			for _, parameter := range o.parameters() {
				for _, id := range hostileIDs {
					values := map[string]string{parameter: id}
					for other, value := range f.values {
						if other != parameter {
							values[other] = value
						}
					}
					header := bearer(adminToken)
					if o.bodyType != "" {
						header.Set("Content-Type", o.bodyType)
					}
					probes++
					clean(t, fmt.Sprintf("%s: %s with %s %.40s", name, o, parameter, id), f.ask(t, o.method, o.at(values), header, ""))
				}
			}
		}
		f.alive(t)
		t.Logf("%s: %d probes", name, probes)
	}
}

// hostileBodies are JSON of the wrong types, or no JSON.
var hostileBodies = []string{
	"", "null", "1", `"text"`, "[]", "[1]", "{", `{"a":`, "true", `{"":{}}`, `[null]`, `{"NextState":{},"Jobs":1,"limit":"x"}`, "\xff\xfe", "\x00",
	`{"source_id":1,"message_id":[],"receiver":{}}`, `{"post_endpoint":[],"secrets":"x"}`, `{"token":{},"sources":{}}`, `{"ids":{},"filter":[]}`,
	`{"Rate":"x","Status":1,"Metadata":[]}`, strings.Repeat("[", 100_000), `{"a":` + strings.Repeat(`{"a":`, 20_000), `{"rate":1e400}`,
	`{"dry_run":"yes"}`,
}

// Every route with a body refuses what it does not understand.
func TestHostileBodiesOnEveryRoute(t *testing.T) {
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		probes := 0
		for _, o := range f.operations(t) {
			if o.method == http.MethodGet {
				continue
			}
			for i, body := range hostileBodies {
				for _, contentType := range []string{o.bodyType, "application/json"} {
					header := bearer(adminToken)
					if contentType != "" {
						header.Set("Content-Type", contentType)
					}
					probes++
					clean(t, fmt.Sprintf("%s: %s with body %d as %q", name, o, i, contentType), f.ask(t, o.method, o.at(f.values), header, body))
				}
			}
		}
		f.alive(t)
		t.Logf("%s: %d probes", name, probes)
	}
}

// Headers, paths and bodies that are too large are refused, on every route.
func TestOversizedRequestsOnEveryRoute(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		probes := 0
		for _, o := range f.operations(t) {
			probes += 2
			header := bearer(adminToken)
			header.Set("X-Large", large)
			require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, f.ask(t, o.method, o.at(f.values), header, "").status, "%s: %s", name, o)
			require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, f.ask(t, o.method, o.at(f.values)+"?q="+large, bearer(adminToken), "").status, "%s: %s",
				name, o)
		}
		f.alive(t)
		t.Logf("%s: %d probes", name, probes)
	}
}

// raw opens a connection and sends text as it is.
func (s *system) raw(t *testing.T, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	_, err = conn.Write([]byte(text))
	require.NoError(t, err)
	return conn
}

// Clients that send no end, or read no answer, keep nobody else from being answered.
func TestSlowClients(t *testing.T) {
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		for range 100 {
			f.raw(t, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
			f.raw(t, strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 20))
			f.raw(t, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+adminToken+"\r\nContent-Length: 1000\r\n\r\n{")
		}
		f.alive(t)
		require.NotEmpty(t, f.operations(t), name)
	}
}

// Requests that two parsers may read differently are refused.
func TestAmbiguousRequests(t *testing.T) {
	for name, s := range map[string]*system{"broker": newBroker(t).system, "relay": newRelay(t).system} {
		for _, head := range []string{
			"GET /healthz HTTP/1.1\r\n\r\n",
			"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
			"GET /healthz HTTP/1.1\r\nHost: local host\r\n\r\n",
			"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
			"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
			"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX : 1\r\n\r\n",
			"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
		} {
			resp, err := http.ReadResponse(bufio.NewReader(s.raw(t, head)), nil)
			require.NoError(t, err, "%s: %q", name, head)
			require.GreaterOrEqual(t, resp.StatusCode, 400, "%s: %q", name, head)
			_ = resp.Body.Close()
		}
		s.alive(t)
	}
}
