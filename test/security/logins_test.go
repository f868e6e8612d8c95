package security

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A client without a token gets the same answer for an object that exists and for one that does not, on every route.
func TestNobodyLearnsWhatExists(t *testing.T) {
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		probes := 0
		for _, o := range f.operations(t) {
			for _, parameter := range o.parameters() {
				values := map[string]string{parameter: "unknown"}
				for other, value := range f.values {
					if other != parameter {
						values[other] = value
					}
				}
				for _, role := range []string{"none", "wrong"} {
					probes++
					header := f.tokens[role].Clone()
					if o.bodyType != "" {
						header.Set("Content-Type", o.bodyType)
					}
					there, not := f.ask(t, o.method, o.at(f.values), header, "x"), f.ask(t, o.method, o.at(values), header, "x")
					require.Equal(t, there.status, not.status, "%s: %s without %s: %s, %s", name, o, parameter, there.body, not.body)
					require.Equal(t, string(there.body), string(not.body), "%s: %s without %s", name, o, parameter)
				}
			}
		}
		f.alive(t)
		t.Logf("%s: %d probes", name, probes)
	}
}

// An address that has shown too many wrong tokens waits with each further one, and never with the right one.
func TestFailedLoginsAreLimited(t *testing.T) {
	t.Parallel()
	for name, route := range map[string]string{"broker": "/producers", "relay": "/v1/receivers"} {
		s := start(t, name, "--admin-token", adminToken, "--admin-max-failed-logins-per-minute", "5", "--http-open-metrics", "true")
		s.client.Transport = &http.Transport{DisableKeepAlives: true} // net/http sends a request again only on a connection that it has used before
		require.True(t, guesses(func() bool {
			a := s.ask(t, http.MethodGet, route, bearer("guess"), "")
			assert.Contains(t, []int{http.StatusUnauthorized, http.StatusTooManyRequests}, a.status, "%s: %s", name, a.body)
			return a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != ""
		}), name)
		require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, route, bearer(adminToken), "").status, name)
		require.Equal(t, http.StatusUnauthorized, s.ask(t, http.MethodGet, route, nil, "").status, "%s: no token is no wrong one", name)
		require.Contains(t, string(s.ask(t, http.MethodGet, "/metrics", nil, "").body), "\n"+name+"_failed_logins_total 22\n")
		s.alive(t)
	}
}

// A sender that keeps sending a token which is not valid any more makes itself wait, and nobody else.
func TestAStaleTokenLocksNobodyOut(t *testing.T) {
	t.Parallel()
	r := newRelay(t, "--admin-max-failed-logins-per-minute", "5")
	r.client.Transport = &http.Transport{DisableKeepAlives: true}
	require.True(t, guesses(func() bool {
		return r.ask(t, http.MethodPost, "/v1/messages", jsonOf(bearer("stale")), messageOf("shop", "stale")).status == http.StatusTooManyRequests
	}))
	require.Equal(t, http.StatusOK, r.ask(t, http.MethodGet, "/v1/receivers", bearer(adminToken), "").status)
	require.Equal(t, http.StatusAccepted, r.ask(t, http.MethodPost, "/v1/messages", jsonOf(bearer("token-of-sender")), messageOf("shop", "good")).status)
}

func messageOf(source, id string) string {
	return fmt.Sprintf(`{"source_id":%q,"message_id":%q,"receiver":"r","payload":"x"}`, source, id)
}

func jsonOf(h http.Header) http.Header {
	h.Set("Content-Type", "application/json")
	return h
}
