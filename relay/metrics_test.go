package relay

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Metrics name receivers, senders and failures, so they need the admin token.
func TestMetricsNeedTheAdminToken(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.sender("git", "none", "")
	for _, token := range []string{"", "wrong", "git-token"} {
		answer := s.want(401, "GET", "/metrics", token, nil)
		require.Equal(t, "unauthorized", answer["error"].(object)["code"])
	}
	code, _ := s.call("GET", "/metrics", adminToken, nil)
	require.Equal(t, 200, code)
	for name, change := range map[string]func(*Config){
		"open metrics":   func(c *Config) { c.HTTP.OpenMetrics = true },
		"no admin token": func(c *Config) { c.Admin.Token = "" },
	} {
		code, _ = startSite(t, change).call("GET", "/metrics", "", nil)
		require.Equal(t, 200, code, name)
	}
}

var resultLabel = regexp.MustCompile(`relay_(?:attempt_seconds_count|polls_total|callbacks_total)\{[^}]*(?:result|status)="([^"]*)"`)

// The status codes that a receiver or a sender chooses add no series.
func TestSeriesPerClassOfStatus(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	codes := []int{200, 203, 204, 226, 302, 307, 400, 401, 418, 451}
	answers := func(n int, _ seen) (int, string) { return codes[n-1], "" }
	s.receiver("ci", newPeer(t, answers).URL, nil)
	s.sender("git", newPeer(t, nil).URL, "")
	for i := range codes {
		s.want(202, "POST", "/v1/messages", adminToken, message("a", fmt.Sprint(i), "ci"))
	}
	for i := range codes {
		eventually(t, func() bool { o := s.status("a", fmt.Sprint(i))["status"]; return o == "DONE" || o == "FAILED" }, "it does not end")
	}
	var body []byte
	eventually(t, func() bool {
		_, body = s.call("GET", "/metrics", adminToken, nil)
		return strings.Contains(string(body), fmt.Sprintf(`relay_callbacks_total{result="2xx",sender="git"} %d`+"\n", len(codes)))
	}, "the callbacks are not counted by class")
	seen := map[string]bool{}
	for _, label := range resultLabel.FindAllStringSubmatch(string(body), -1) {
		seen[label[1]] = true
	}
	require.Equal(t, map[string]bool{"2xx": true, "3xx": true, "4xx": true}, seen)
	require.Contains(t, string(body), `relay_attempt_seconds_count{receiver="ci",result="4xx"} 4`+"\n")
}
