package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/internal/domain"
)

// The rights of an access token depend on its role and are limited to its channel.
func TestAccessTokens(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Admin.Token = domain.HashToken("secret") })
	admin := header{"X-Broker-Admin-Token": "secret"}
	adminForm := with(admin, formType)
	s.expect(200, "", "PUT", "/channel/other", adminForm, "token=ct2")
	s.expect(400, `Bad Request: role: role "boss" is not known: use read, publish or manage`, "PUT", "/channel/ch/access/x", adminForm, "role=boss")
	s.expect(400, "", "PUT", "/channel/ch/access/x", adminForm, url.Values{"role": {"read"}, "token": {domain.HashToken("x")}}.Encode())
	s.expect(404, "Request resource not found", "PUT", "/channel/none/access/x", adminForm, "role=read")
	tokens := map[string]header{"none": {}, "wrong": {"X-Broker-Admin-Token": "x"}}
	for _, role := range []string{"read", "publish", "manage"} {
		made := s.expect(200, "", "PUT", "/channel/ch/access/"+role, adminForm, "role="+role)
		var token struct{ ID, Role, Token string }
		s.json(made, &token)
		require.Len(t, token.Token, 26)
		require.Equal(t, role, token.Role)
		tokens[role] = header{"Authorization": "Bearer " + token.Token}
	}
	list := s.expect(200, "", "GET", "/channel/ch/access", tokens["manage"], "").body
	require.Equal(t, 3, strings.Count(list, `"Role"`))
	require.NotContains(t, list, "Token")
	one := s.expect(200, "", "GET", "/channel/ch/access/read", tokens["manage"], "")
	require.Contains(t, one.body, `"Role":"read"`)
	require.NotContains(t, one.body, "Token")
	require.NotEmpty(t, one.header.Get("Last-Modified"))

	for _, tt := range []struct {
		method, path, body string
		want               map[string]int // by role; 0 for one that is not named means 401
	}{
		{"GET", "/channel/ch", "", map[string]int{"read": 200, "publish": 200, "manage": 200}},
		{"GET", "/channel/ch/consumer/pull/dlq", "", map[string]int{"read": 200, "publish": 200, "manage": 200}},
		{"GET", "/channel/other", "", map[string]int{}},
		{"GET", "/producers", "", map[string]int{}},
		{"GET", "/metrics", "", map[string]int{}},
		{"GET", "/channel/ch/access", "", map[string]int{"read": 403, "publish": 403, "manage": 200}},
		{"PUT", "/channel/ch/consumer/none", "", map[string]int{"read": 403, "publish": 403, "manage": 415}},
		{"POST", "/channel/ch/consumer/pull/replay", `{"DryRun":true}`, map[string]int{"read": 403, "publish": 403, "manage": 200}},
		{"POST", "/channel/other/consumer/pull/replay", `{}`, map[string]int{}},
	} {
		for name, h := range tokens {
			want := tt.want[name]
			if want == 0 {
				want = 401
			}
			a := s.do(tt.method, tt.path, h, tt.body)
			require.Equal(t, want, a.status, "%s %s %s: %s", tt.method, tt.path, name, a.body)
			if want == 403 {
				require.Equal(t, "the access token has the role "+name+": this needs the role manage, or the admin token", a.body)
			}
		}
	}
	for name, want := range map[string]int{"none": 403, "wrong": 403, "read": 403, "publish": 201, "manage": 201} {
		a := s.do("POST", "/channel/ch/broadcast", with(tokens[name], header{"X-Broker-Producer-ID": "pr"}), "x")
		require.Equal(t, want, a.status, "%s: %s", name, a.body)
		a = s.do("POST", "/channel/other/broadcast", with(tokens[name], header{"X-Broker-Producer-ID": "pr"}), "x")
		require.Equal(t, 403, a.status, name)
	}
	s.expect(401, "producer could not be found", "POST", "/channel/ch/broadcast", with(tokens["publish"], header{"X-Broker-Producer-ID": "no"}), "x")

	// A token that may change a channel may also delete its jobs and scheduled messages.
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for i, who := range []header{admin, tokens["manage"]} {
		id := "later" + strconv.Itoa(i)
		s.broadcast(id, "x", header{"X-Broker-Scheduled-For": later})
		s.expect(403, "channel token does not match", "DELETE", "/channel/ch/scheduled-message/"+id, tokens["read"], "")
		s.expect(403, "channel token does not match", "DELETE", "/channel/ch/consumer/pull/dlq", tokens["publish"], "")
		s.expect(204, "", "DELETE", "/channel/ch/scheduled-message/"+id, who, "")
		s.expect(404, "Request resource not found", "DELETE", "/channel/none/scheduled-message/"+id, admin, "")
		require.Equal(t, "{\"deletedCount\":0}\n", s.expect(200, "", "DELETE", "/channel/ch/consumer/pull/dlq", who, "").body)
		s.expect(404, "Request resource not found", "DELETE", "/channel/ch/consumer/pull/job/x", who, "")
	}

	require.Contains(t, s.expect(200, "", "GET", "/channel/ch", tokens["manage"], "").body, `"Token":"ct"`)
	for _, path := range []string{"/channel/ch", "/channel/ch/consumer/pull"} {
		require.Contains(t, s.expect(200, "", "GET", path, tokens["read"], "").body, `"Token":""`, "who may read would be able to do more with it")
	}
	s.expect(204, "", "DELETE", "/channel/ch/access/read", tokens["manage"], "")
	s.expect(401, "admin token missing or wrong", "GET", "/channel/ch", tokens["read"], "")
	s.expect(404, "Request resource not found", "DELETE", "/channel/ch/access/read", admin, "")
}

// Callback URLs may contain secrets. Wherever they are shown, the secrets are masked for callers that may not change them.
func TestCallbackURLsAreMaskedForReaders(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) {
		cfg.Admin.Token = "secret"
		cfg.Seed.Consumers[0].CallbackURL = "http://user:password@127.0.0.1:9/hook?key=value"
	})
	tokens := map[string]header{"admin": {"X-Broker-Admin-Token": "secret"}}
	for _, role := range []string{"read", "publish", "manage"} {
		var made struct{ Token string }
		s.json(s.expect(200, "", "PUT", "/channel/ch/access/"+role, with(tokens["admin"], formType), "role="+role), &made)
		tokens[role] = header{"X-Broker-Admin-Token": made.Token}
	}
	s.broadcast("m", "x", nil)
	id := s.work("POST", "claim")[0].ID
	s.expect(202, "", "POST", job+id, jobTokens, `{"NextState":"DEAD"}`)
	for _, path := range []string{"/channel/ch/consumer/pull", "/channel/ch/message/m", "/channel/ch/consumer/pull/dlq"} {
		for role, token := range tokens {
			shown := s.expect(200, "", "GET", path, token, "").body
			if role == "read" || role == "publish" {
				require.Contains(t, shown, `"http://…@127.0.0.1:9/hook?…"`, "%s %s", role, path)
			} else {
				require.Contains(t, shown, `"http://user:password@127.0.0.1:9/hook?key=value"`, "%s %s", role, path)
			}
		}
	}
}

// Tokens that are stored as hashes are shown once, and remain valid.
func TestHashedTokens(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Admin.HashTokens = true })
	s.broadcast("m", "x", nil)
	require.Contains(t, s.expect(200, "", "GET", "/producer/pr", nil, "").body, `"Token":""`)
	made := s.put("/producer/new", url.Values{"token": {"plain"}})
	require.Contains(t, made.body, `"Token":"plain"`)
	modified := header{"If-Unmodified-Since": made.header.Get("Last-Modified")}
	same := s.expect(200, "", "PUT", "/producer/new", with(formType, modified), "token=plain")
	require.Equal(t, made.body, same.body, "a PUT that changes nothing leaves ChangedAt alone")
	s.expect(201, "", "POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Producer-ID": "new", "X-Broker-Producer-Token": "plain"}), "x")
	s.expect(403, "producer token does not match", "POST", "/channel/ch/broadcast",
		with(producer, header{"X-Broker-Producer-ID": "new", "X-Broker-Producer-Token": domain.HashToken("plain")}), "x")
	require.Len(t, s.work("GET", "queued-jobs"), 2, "with the token of the channel, which is hashed too")
	s.expect(http.StatusForbidden, "channel token does not match", "GET", "/channel/ch/consumer/pull/queued-jobs",
		with(jobTokens, header{"X-Broker-Channel-Token": domain.HashToken("ct")}), "")
}

// A PUT with keep=true changes the given fields alone, also of what the broker does not show.
func TestPutKeepsFields(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Admin.HashTokens, cfg.Admin.Token = true, "secret" })
	create := with(formType, header{"X-Broker-Admin-Token": "secret"})
	change := with(create, header{"If-Match": "*"})
	const path, secret = "/channel/ch/consumer/kept", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	full := url.Values{
		"token": {"kt"}, "name": {"Kept"}, "callbackUrl": {"http://h/a"}, "type": {"pull"}, "concurrency": {"3"}, "rateLimit": {"2.5"},
		"signingSecret": {secret}, "headers": {`{"X-Api-Key":"k"}`}, "eventTypes": {"order.*,x"},
	}
	var k struct {
		Token, Name, CallbackURL, Type, EventTypes string
		Concurrency                                int
		RateLimit                                  float64
		Signed                                     bool
		Headers                                    map[string]string
	}
	put := func(query, form string) string {
		k.Concurrency, k.RateLimit, k.Signed, k.EventTypes, k.Headers = 0, 0, false, "", nil
		s.json(s.expect(200, "", "PUT", path+query, change, form), &k)
		return fmt.Sprint(k.Token, " ", k.Name, " ", k.CallbackURL, " ", k.Type, " ", k.Concurrency, k.RateLimit, k.Signed, len(k.Headers), k.EventTypes)
	}
	require.Equal(t, "kt Kept http://h/a pull 3 2.5 true 1order.*,x", put("?keep=true", full.Encode()), "a new one")
	require.Equal(t, "kt Kept http://h/b pull 3 2.5 true 1order.*,x", put("?keep=true", "callbackUrl=http://h/b"))
	for _, form := range []string{"", "&headers=", "&signingSecret="} { // another server would get what nobody may read
		s.expect(400, "", "PUT", path+"?keep=true", change, "callbackUrl=http://other/b"+form)
	}
	for _, to := range []string{"", "http:other", "/b"} { // which is no server at all
		a := s.expect(400, "", "PUT", path+"?keep=true", change, "callbackUrl="+to)
		require.Contains(t, a.body, "is not absolute")
	}
	require.Equal(t, "kt Kept http://h/b pull 3 2.5 true 1order.*,x", put("?keep=true", ""))
	require.Equal(t, "kt kept http://h/b push 0 0 false 0", put("?keep=true", "name=&type=&concurrency=&rateLimit=&signingSecret=&headers=&eventTypes="))
	require.Regexp(t, `^\S{26} kept http://h/b push 0 0 false 0$`, put("?keep=false", "callbackUrl=http://h/b"))
	s.expect(400, "", "PUT", path+"?keep=true", change, "concurrency=0")
	s.expect(400, "", "PUT", path+"?keep=yes", change, "name=x")
	s.expect(400, "", "PUT", "/channel/ch/consumer/other?keep=true", change, "name=x")
	s.expect(400, "Bad Request: Update is missing `If-Unmodified-Since` header ", "PUT", path+"?keep=true", create, "name=x")

	for _, path := range []string{"/producer/kept", "/channel/kept", "/channel/ch/access/kept"} {
		s.expect(200, "", "PUT", path, create, "token=hidden&role=read")
		a := s.expect(200, "", "PUT", path+"?keep=true", change, "name=Renamed")
		require.Contains(t, a.body, `"Name":"Renamed"`)
		require.NotContains(t, a.body, "hidden")
		require.NotContains(t, a.body, domain.HashToken("hidden"))
	}
	s.expect(200, "", "GET", "/channel/ch", header{"Authorization": "Bearer hidden"}, "")
}
