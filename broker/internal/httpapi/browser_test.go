package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

// pages are requests that a browser makes for a page, with how a broker without an admin token answers one that changes
// something and one that reads.
var pages = map[string]struct {
	header        header
	change, reads int
}{
	"no browser":                      {header{}, 200, 200},
	"another site":                    {header{"Origin": "http://other.example"}, 403, 200},
	"another site, that it names":     {header{"Sec-Fetch-Site": "cross-site", "Origin": "http://other.example"}, 403, 200},
	"a file":                          {header{"Origin": "null"}, 403, 200},
	"another port":                    {header{"Sec-Fetch-Site": "same-site", "Host": "localhost:8080", "Origin": "http://localhost:3000"}, 403, 200},
	"its own":                         {header{"Sec-Fetch-Site": "same-origin", "Host": "localhost:8080", "Origin": "http://localhost:8080"}, 200, 200},
	"typed in":                        {header{"Sec-Fetch-Site": "none"}, 200, 200},
	"a name that leads here":          {header{"Host": "other.example:8080", "Origin": "http://other.example:8080"}, 403, 403},
	"such a name, without Origin":     {header{"Host": "other.example:8080"}, 403, 403},
	"an address that leads here":      {header{"Host": "10.1.2.3"}, 403, 403},
	"localhost":                       {header{"Host": "LocalHost"}, 200, 200},
	"below localhost":                 {header{"Host": "broker.localhost:80"}, 200, 200},
	"localhost in IPv6":               {header{"Host": "[::1]:8080"}, 200, 200},
	"localhost in IPv6, without port": {header{"Host": "[::1]"}, 200, 200},
	"another loopback address":        {header{"Host": "127.1.2.3"}, 200, 200},
	"a reverse proxy":                 {header{"Host": "127.0.0.1:8080", "X-Forwarded-For": "10.1.2.3"}, 200, 200},
	"a reverse proxy with a name":     {header{"Host": "broker.example", "X-Forwarded-For": "10.1.2.3"}, 403, 403},
}

// A page of another site cannot use a browser to change what is in a broker that everybody on this machine may use. It cannot
// read it either by a name of its own that it has led here.
func TestPagesOfOtherSites(t *testing.T) {
	s := newSite(t, nil)
	for name, tt := range pages {
		for _, request := range []struct{ path, body string }{
			{"/channel/ch/consumer/pull/pause", ""}, {"/channel/ch/consumer/pull/resume", ""}, {"/channel/ch/consumer/pull/replay", `{"DryRun":true}`},
		} {
			a := s.do("POST", request.path, with(tt.header, header{"Content-Type": "text/plain"}), request.body)
			require.Equal(t, tt.change, a.status, "%s, %s: %s", name, request.path, a.body)
		}
		a := s.do("GET", "/channel/ch", tt.header, "")
		require.Equal(t, tt.reads, a.status, "%s: %s", name, a.body)
	}
}

// Pages do not have an admin token, and a broker with one may have any name.
func TestPagesAreNotLookedAtWithAnAdminToken(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Admin.Token = "secret" })
	for name, tt := range pages {
		a := s.do("POST", "/channel/ch/consumer/pull/pause", with(tt.header, header{"X-Broker-Admin-Token": "secret"}), "")
		require.Equal(t, 200, a.status, "%s: %s", name, a.body)
	}
}
