package security

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// access says who may use a route.
type access string

const (
	everybody access = "everybody"
	admins    access = "the admin token"
	// readers and managers have the admin token, or an access token of the channel with at least that role.
	readers  access = "role read"
	managers access = "role manage"
	// senders have the admin token or that of a sender.
	senders access = "a sender's token"
	// owners have the tokens of channel, producer or consumer, which are headers or fields of their own. An access token may take their place
	// where it has the role.
	owners access = "tokens of its own"
	// deleters have the tokens that owners have, or an access token with the role manage.
	deleters access = "tokens of its own, or role manage"
)

// allowed has every route of every OpenAPI document.
var allowed = map[string]map[string]access{
	"broker": {
		"GET /producers": admins, "GET /producer/{producer}": admins, "PUT /producer/{producer}": admins, "DELETE /producer/{producer}": admins,
		"GET /channels": admins, "GET /channel/{channel}": readers, "PUT /channel/{channel}": managers, "DELETE /channel/{channel}": admins,
		"GET /channel/{channel}/consumers":                      readers,
		"GET /channel/{channel}/consumer/{consumer}":            readers,
		"PUT /channel/{channel}/consumer/{consumer}":            managers,
		"DELETE /channel/{channel}/consumer/{consumer}":         managers,
		"POST /channel/{channel}/consumer/{consumer}/pause":     managers,
		"POST /channel/{channel}/consumer/{consumer}/resume":    managers,
		"GET /channel/{channel}/access":                         managers,
		"GET /channel/{channel}/access/{access}":                managers,
		"PUT /channel/{channel}/access/{access}":                managers,
		"DELETE /channel/{channel}/access/{access}":             managers,
		"POST /channel/{channel}/broadcast":                     owners,
		"GET /channel/{channel}/messages":                       readers,
		"GET /channel/{channel}/messages-status":                readers,
		"GET /channel/{channel}/message/{message}":              readers,
		"GET /channel/{channel}/scheduled-messages":             readers,
		"GET /channel/{channel}/scheduled-message/{message}":    readers,
		"DELETE /channel/{channel}/scheduled-message/{message}": deleters,

		"GET /channel/{channel}/consumer/{consumer}/queued-jobs":                 owners,
		"POST /channel/{channel}/consumer/{consumer}/claim":                      owners,
		"GET /channel/{channel}/consumer/{consumer}/jobs":                        readers,
		"POST /channel/{channel}/consumer/{consumer}/jobs":                       owners,
		"GET /channel/{channel}/consumer/{consumer}/job/{job}":                   owners,
		"POST /channel/{channel}/consumer/{consumer}/job/{job}":                  owners,
		"DELETE /channel/{channel}/consumer/{consumer}/job/{job}":                deleters,
		"GET /channel/{channel}/consumer/{consumer}/job/{job}/attempts":          readers,
		"POST /channel/{channel}/consumer/{consumer}/job/{job}/extend":           owners,
		"POST /channel/{channel}/consumer/{consumer}/job/{job}/requeue-dead-job": owners,
		"GET /channel/{channel}/consumer/{consumer}/dlq":                         readers,
		"POST /channel/{channel}/consumer/{consumer}/dlq":                        owners,
		"DELETE /channel/{channel}/consumer/{consumer}/dlq":                      deleters,
		"POST /channel/{channel}/consumer/{consumer}/purge":                      managers,
		"POST /channel/{channel}/consumer/{consumer}/replay":                     managers,
		"GET /channel/{channel}/consumer/{consumer}/replay/{replay}":             readers,
		"DELETE /channel/{channel}/consumer/{consumer}/replay/{replay}":          managers,

		"GET /consumers": admins, "GET /replays": admins, "GET /dead-jobs": admins, "POST /dead-jobs/requeue": admins, "POST /dead-jobs/purge": admins,
		"GET /dead-jobs/operations": admins, "GET /dead-jobs/operations/{operation}": admins, "DELETE /dead-jobs/operations/{operation}": admins,
		"GET /job-status": admins, "GET /dlq-status": admins, "GET /metrics": admins, "GET /backup": admins, "GET /backup/{stream}": admins,
		"GET /_status": everybody, "GET /healthz": everybody, "GET /readyz": everybody, "GET /openapi.json": everybody,
	},
	"relay": {
		"GET /v1/receivers": admins, "GET /v1/receivers/{name}": admins, "PUT /v1/receivers/{name}": admins, "PATCH /v1/receivers/{name}": admins,
		"DELETE /v1/receivers/{name}": admins,
		"GET /v1/senders":             admins, "GET /v1/senders/{name}": admins, "PUT /v1/senders/{name}": admins, "PATCH /v1/senders/{name}": admins,
		"DELETE /v1/senders/{name}": admins,
		"POST /v1/messages":         senders, "POST /v1/messages:batch": senders,
		"GET /v1/messages": admins, "GET /v1/messages/{source}/{id}/request": admins,
		"GET /v1/messages/{source}/{id}": senders, "GET /v1/messages/{source}/{id}/response": senders,
		"GET /v1/failed": admins, "POST /v1/failed:redrive": admins, "POST /v1/failed:skip": admins, "POST /v1/failed:purge": admins,
		"GET /v1/operations": admins, "GET /v1/operations/{id}": admins, "DELETE /v1/operations/{id}": admins, "GET /metrics": admins,
		"GET /healthz": everybody, "GET /readyz": everybody, "GET /openapi.json": everybody,
	},
}

// may reports whether a role may use a route of an access. Routes of owners have their own check.
func (a access) may(role string) bool {
	switch a {
	case everybody:
		return true
	case readers:
		return role == "read" || role == "publish" || role == "manage"
	case managers, deleters:
		return role == "manage"
	case senders:
		return role == "sender" || role == "other"
	case admins, owners:
	}
	return false
}

// Every route refuses every token that is not for it, and each document's routes are those of the table.
func TestTokensOnEveryRoute(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		probes, known := 0, map[string]bool{}
		for _, o := range f.operations(t) {
			who, ok := allowed[name][o.String()]
			known[o.String()] = true
			if !ok {
				t.Errorf("%s: %s is not in the table: say who may use it", name, o)
				continue
			}
			for _, role := range f.tokens.roles() {
				if who.may(role) && (o.method != http.MethodGet || who == senders) {
					continue // what a role may change is the contract's, and would change what is probed next
				}
				probes++
				a := f.ask(t, o.method, o.at(f.values), f.tokens[role], "")
				switch {
				case who == owners:
					require.True(t, a.status >= 400 && a.status < 500, "%s: %s with token %q: %d %s", name, o, role, a.status, a.body)
				case who.may(role):
					require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.status, "%s: %s with token %q: %s", name, o, role, a.body)
				default:
					require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.status, "%s: %s with token %q: %s", name, o, role, a.body)
				}
				if !who.may(role) {
					require.NotContains(t, string(a.body), "secret", "%s: %s with token %q", name, o, role)
				}
			}
			a := f.ask(t, o.method, o.at(map[string]string{}), f.tokens["wrong"], "")
			require.Less(t, a.status, 500, "%s: %s: %s", name, o, a.body)
		}
		for route := range allowed[name] {
			require.True(t, known[route], "%s: the table has %s and the OpenAPI document has not", name, route)
		}
		f.alive(t)
		t.Logf("%s: %d probes", name, probes)
	}
}

// A sender's token is good for its own sources only.
func TestASenderReachesNoOtherSource(t *testing.T) {
	f := newRelay(t)
	for _, o := range []operation{{method: "GET", path: "/v1/messages/shop/m-1"}, {method: "GET", path: "/v1/messages/shop/m-1/response"}} {
		require.NotEqual(t, http.StatusForbidden, f.ask(t, o.method, o.path, f.tokens["sender"], "").status)
		require.Equal(t, http.StatusForbidden, f.ask(t, o.method, o.path, f.tokens["other"], "").status, o)
	}
	const message = `{"source_id":"shop","message_id":"m-2","receiver":"r","payload":1}`
	require.Equal(t, http.StatusForbidden, f.ask(t, http.MethodPost, "/v1/messages", f.tokens["other"], message).status)
	a := f.ask(t, http.MethodPost, "/v1/messages:batch", f.tokens["other"], message+"\n")
	require.Contains(t, string(a.body), "forbidden", "%d", a.status)
	require.Equal(t, http.StatusNotFound, f.ask(t, http.MethodGet, "/v1/messages/shop/m-2", bearer(adminToken), "").status)
}

// A page of another site changes nothing on a system without an admin token, and reads nothing by a name of its own.
func TestOtherSitesOnEveryRoute(t *testing.T) {
	for _, name := range []string{"broker", "relay"} {
		s := start(t, name)
		probes := 0
		for _, o := range s.operations(t) {
			path := o.at(map[string]string{
				"producer": "p", "channel": "c", "consumer": "k", "message": "m", "access": "a", "replay": "r", "stream": "s", "job": "j",
				"name": "n", "source": "s", "id": "i",
			})
			probes++
			foreign := s.ask(t, o.method, path, http.Header{"Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}, "")
			if o.method == http.MethodGet {
				require.Empty(t, foreign.header.Get("Access-Control-Allow-Origin"), "%s: %s", name, o)
			} else {
				require.Equal(t, http.StatusForbidden, foreign.status, "%s: %s from another origin: %s", name, o, foreign.body)
			}
			for _, host := range []string{"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.1.2.3", "localhost.evil.example"} {
				probes++
				rebound := s.ask(t, o.method, path, http.Header{"Host": {host}}, "")
				require.Equal(t, http.StatusForbidden, rebound.status, "%s: %s for host %s: %s", name, o, host, rebound.body)
			}
		}
		s.alive(t)
		t.Logf("%s: %d probes", name, probes)
	}
}

// No answer of a system without an admin token may be read or framed by another site's page.
func TestNoAnswerAllowsOtherOrigins(t *testing.T) {
	f := newBroker(t)
	for _, o := range f.operations(t) {
		a := f.ask(t, http.MethodOptions, o.at(f.values), http.Header{"Origin": {"http://evil.example"}, "Access-Control-Request-Method": {o.method}}, "")
		for name := range a.header {
			require.False(t, strings.HasPrefix(name, "Access-Control-"), "%s: %s", o, name)
		}
	}
}
