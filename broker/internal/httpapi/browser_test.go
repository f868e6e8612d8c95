package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

// A page of another site cannot use a browser to change a broker without an admin token, nor read it through a host name that
// resolves to this machine. A broker with an admin token may have any host name.
func TestPagesOfOtherSites(t *testing.T) {
	const pause = "/channel/ch/consumer/pull/pause"
	for _, token := range []string{"", "secret"} {
		s := newSite(t, func(cfg *broker.Config) { cfg.Admin.Token = token })
		for _, tt := range []struct {
			method, path string
			header       header
		}{
			{"POST", pause, header{"Origin": "http://other.example"}},
			{"GET", "/channel/ch", header{"Host": "other.example"}},
			{"POST", pause, header{"Host": "other.example", "Origin": "http://other.example"}},
		} {
			a := s.do(tt.method, tt.path, with(tt.header, header{"Content-Type": "text/plain", "X-Broker-Admin-Token": token}), "")
			require.Equal(t, map[string]int{"": 403, "secret": 200}[token], a.status, "%v: %s", tt.header, a.body)
		}
	}
}
