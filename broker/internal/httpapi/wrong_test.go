package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// An invalid value in a request is refused. The error has its name, the value and the allowed values.
func TestWrongInputIsRefused(t *testing.T) {
	s := newSite(t, nil)
	for _, value := range []string{"-7", "high", "1.5", "0x1", "2147483648", "99999999999999999999", "-9223372036854775808"} {
		s.expect(400, fmt.Sprintf("X-Broker-Message-Priority %q: give a whole number from 0 to 2147483647", value),
			"POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Message-Priority": value}), "x")
	}
	s.broadcast("largest", "x", header{"X-Broker-Message-Priority": "2147483647"})
	s.broadcast("empty", "x", header{"X-Broker-Message-Priority": ""})

	for path, known := range map[string]string{
		"queued-jobs?wiat=20s": "one of limit, wait", "claim?wiat=20s": "one of limit, wait, timeout",
		"claim?limit=1&wiat=20s&wait=1s": "one of limit, wait, timeout",
		"jobs?wiat=20s":                  "none, this route has no parameters",
	} {
		method := http.MethodPost
		if known == "one of limit, wait" {
			method = http.MethodGet
		}
		s.expect(400, `invalid query parameter: "wiat" with value "20s" is not known: give `+known, method, "/channel/ch/consumer/pull/"+path, jobTokens,
			"{}")
	}
	s.expect(400, `invalid query parameter: timeout "1000000h": give 604800 seconds at most`, "POST",
		"/channel/ch/consumer/pull/claim?timeout=1000000h", jobTokens, "")
	s.expect(400, `invalid query parameter: "page" with value "2" is not known: give one of next, previous`, "GET", "/channels?page=2", nil, "")
	s.expect(400, `invalid query parameter: "dry" with value "" is not known: give none, this route has no parameters`, "GET", "/channel/ch?dry", nil,
		"")
	s.expect(401, "producer could not be found", "POST", "/channel/ch/broadcast", header{"X-Broker-Channel-Token": "ct"}, "x")
	for path, method := range map[string]string{
		"consumer/pull/claim?limit=1;wait=1s": "POST", "messages?id=m1;x": "GET", "messages?id=%zz": "GET", "broadcast?x=1;y": "POST",
	} {
		answer := s.expect(400, "", method, "/channel/ch/"+path, with(producer, jobTokens), "{}")
		require.Contains(t, answer.body, "invalid query")
	}
	s.expect(400, `invalid query parameter: "x" with value "" is not known: give none, this route has no parameters`, "GET", "/consumers?x", nil, "")
	for _, probe := range []string{"/healthz?verbose", "/readyz?x=1", "/metrics?name[]=x", "/_status?x", "/job-status?x"} {
		s.expect(200, "", "GET", probe, nil, "")
	}

	for _, list := range []string{"messages", "scheduled-messages"} {
		for _, value := range []string{"abc", "103", "-1"} {
			s.expect(400, fmt.Sprintf("invalid query parameter: status %q: give 101 or 102", value), "GET", "/channel/ch/"+list+"?status="+value, nil, "")
		}
		s.expect(200, "", "GET", "/channel/ch/"+list+"?status=", nil, "")
	}
	s.expect(400, `Bad Request: callbackUrl: URL "ftp://h/" has the scheme ftp: give http:// or https:// and a host`,
		"PUT", "/channel/ch/consumer/bad", formType, "callbackUrl=ftp://h/")
	s.expect(400, `Bad Request: callbackUrl: URL "…" is not absolute: give http:// or https:// and a host`,
		"PUT", "/channel/ch/consumer/bad", formType, "callbackUrl=/relative")
}

// A path with a trailing slash is redirected, as in the original.
func TestSlashIsRedirected(t *testing.T) {
	s := newSite(t, nil)
	for _, r := range []struct {
		method, path, to string
		status           int
	}{
		{"GET", "/channels/", "/channels", 301},
		{"GET", "/channels/?next=x", "/channels?next=x", 301},
		{"GET", "/channel/a%2Fb/messages/", "/channel/a%2Fb/messages", 301},
		{"POST", "/channel/ch/broadcast/", "/channel/ch/broadcast", 308},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, s.base()+r.path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, r.status, resp.StatusCode, r.path)
		to, err := resp.Location()
		require.NoError(t, err)
		require.Equal(t, r.to, to.RequestURI())
		require.NotRegexp(t, "^/", resp.Header.Get("Location"), "it holds below the path of a proxy, too")
	}
}
