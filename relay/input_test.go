package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/relay/client"
	"github.com/jetpull/jetpull/test/servertest"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	s.sender("git", "none", "git/")
	s.sender("hg", "none", "hg/")
	for _, token := range []string{"", "wrong", "git-token"} {
		for _, route := range []string{
			"GET /v1/receivers", "PUT /v1/receivers/x", "DELETE /v1/receivers/ci", "GET /v1/senders/git", "GET /v1/failed",
			"POST /v1/failed:purge", "GET /v1/operations/x",
		} {
			method, path, _ := strings.Cut(route, " ")
			answer := s.want(401, method, path, token, object{})
			require.Equal(t, "unauthorized", answer["error"].(object)["code"])
		}
	}
	s.want(401, "POST", "/v1/messages", "", message("git/a", "1", "ci"))
	s.want(401, "POST", "/v1/messages", "wrong", message("git/a", "1", "ci"))
	s.want(403, "POST", "/v1/messages", "hg-token", message("git/a", "1", "ci"))
	s.want(202, "POST", "/v1/messages", "git-token", message("git/a", "1", "ci"))
	s.want(403, "GET", "/v1/messages/git%2Fa/1", "hg-token", nil)
	s.want(403, "GET", "/v1/messages/git%2Fa/1/response", "hg-token", nil)
	s.want(200, "GET", "/v1/messages/git%2Fa/1", "git-token", nil)
	code, body := s.call("GET", "/v1/senders", adminToken, nil)
	require.Equal(t, 200, code)
	require.NotContains(t, string(body), "token")
}

// A source belongs to the sender with the longest prefix. A sender with a shorter one must not use it.
func TestLongestPrefixOwnsASource(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", newPeer(t, nil).URL, nil)
	s.sender("all", newPeer(t, nil).URL, "")
	s.sender("one", newPeer(t, nil).URL, "one/")
	s.want(403, "POST", "/v1/messages", "all-token", message("one/x", "1", "ci"))
	s.want(202, "POST", "/v1/messages", "one-token", message("one/x", "1", "ci"))
	s.want(403, "GET", "/v1/messages/one%2Fx/1", "all-token", nil)
	s.want(200, "GET", "/v1/messages/one%2Fx/1", "one-token", nil)
	s.want(202, "POST", "/v1/messages", "all-token", message("two/x", "1", "ci"))
	s.want(403, "POST", "/v1/messages", "one-token", message("two/x", "1", "ci"))
}

func TestSecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	secret := webhook.NewSecret()
	s.receiver("ci", "http://127.0.0.1:9/", object{"secrets": []string{secret}})
	for _, path := range []string{"/v1/receivers", "/v1/receivers/ci", "/metrics"} {
		_, body := s.call("GET", path, adminToken, nil)
		require.NotContains(t, string(body), strings.TrimPrefix(secret, "whsec_"))
	}
	s.receiver("ci", "http://127.0.0.1:9/", nil)
	require.EqualValues(t, 1, s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["secret_count"], "left out, they stay")
	bad := s.want(400, "PUT", "/v1/receivers/ci", adminToken, object{"post_endpoint": "http://x/", "secrets": []string{"whsec_!!" + secret}})
	require.NotContains(t, fmt.Sprint(bad), secret)
}

// The path of an endpoint may contain a secret. The errors that senders see do not have it.
func TestSendersDoNotSeeEndpoints(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	callback, reset := newPeer(t, nil), newPeer(t, func(int, seen) (int, string) { return 0, "" })
	s.sender("git", callback.URL, "")
	for i, tt := range []struct{ base, want string }{
		{"http://127.0.0.1:1", "the request was not sent: dial tcp …: connect: connection refused"},
		{"http://169.254.169.254", "address is not allowed"},
		{reset.URL, "EOF"},
	} {
		id := fmt.Sprint(i)
		s.receiver("ci", tt.base+"/services/s3cret?key=s3cret", object{"max_retries": 0})
		s.want(202, "POST", "/v1/messages", "git-token", message("a", id, "ci"))
		s.awaitStatus("a", id, "FAILED")
		_, body := s.call("GET", "/v1/messages/a/"+id, "git-token", nil)
		require.Contains(t, string(body), tt.want)
		eventually(t, func() bool { return callback.count() == i+1 }, "the sender is not called")
		for _, shown := range []string{string(body), callback.list()[i].Body} {
			require.NotContains(t, shown, "s3cret")
			require.NotContains(t, shown, strings.TrimPrefix(tt.base, "http://"))
		}
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(c *Config) { c.HTTP.MaxBodyBytes = 4096 })
	s.receiver("ci", "http://127.0.0.1:9/", object{"paused": true})
	message := func(change string, value any) object {
		m := message("a", "1", "ci")
		m[change] = value
		return m
	}
	for i, tt := range []struct {
		status       int
		method, path string
		body         any
		want         string
	}{
		{400, "POST", "/v1/messages", "", "is empty: JSON expected"},
		{400, "POST", "/v1/messages", "{", "not the JSON"},
		{400, "POST", "/v1/messages", "[]", "not the JSON"},
		{400, "POST", "/v1/messages", "{} {}", "more than one"},
		{400, "POST", "/v1/messages", "{\"source_id\":\"\xff\"}", "UTF-8"},
		{400, "POST", "/v1/messages", message("source_id", ""), "source_id is empty"},
		{400, "POST", "/v1/messages", message("message_id", strings.Repeat("x", 257)), "message_id has 257 bytes"},
		{400, "POST", "/v1/messages", message("message_id", ".."), `message_id is ".."`},
		{400, "POST", "/v1/messages", message("source_id", "."), `source_id is "."`},
		{400, "POST", "/v1/messages", message("unknown", 1), "unknown"},
		{400, "POST", "/v1/messages", object{"source_id": "a", "message_id": "1", "receiver": "ci"}, "payload is missing"},
		{400, "POST", "/v1/messages", message("headers", object{"Relay-Attempt": "9"}), "the relay's"},
		{400, "POST", "/v1/messages", message("headers", object{"webhook-id": "9"}), "the relay's"},
		{400, "POST", "/v1/messages", message("headers", object{"A\r\nB": "9"}), "HTTP can carry"},
		{404, "POST", "/v1/messages", message("receiver", "nobody"), "nobody"},
		{413, "POST", "/v1/messages", message("payload", strings.Repeat("x", 5000)), "4096"},
		{400, "POST", "/v1/messages?wait=soon", message("payload", 1), "wait"},
		{400, "POST", "/v1/messages?wait=-1s", message("payload", 1), "wait"},
		{400, "POST", "/v1/messages?wait=5s;x", message("payload", 1), `invalid query "wait=5s;x"`},
		{400, "POST", "/v1/messages?wiat=5s", message("payload", 1), `"wiat" with value "5s" is not known: give one of wait`},
		{400, "POST", "/v1/messages:batch?wait=5s", "{}", "no parameters"},
		{400, "GET", "/v1/receivers?limit=1", nil, "no parameters"},
		{400, "GET", "/v1/failed?receiver=%zz", nil, `invalid query "receiver=%zz"`},
		{400, "POST", "/v1/messages:batch", "", "empty"},
		{413, "POST", "/v1/messages:batch", strings.Repeat("{}\n", 1001), "1,000"},
		{404, "GET", "/v1/messages/a/none", nil, "none"},
		{404, "GET", "/v1/messages/a", nil, "no such route"},
		{400, "GET", "/v1/messages/%FF/1", nil, "UTF-8"},
		{404, "GET", "/v1/receivers/none", nil, "none"},
		{404, "DELETE", "/v1/receivers/none", nil, "none"},
		{400, "PUT", "/v1/receivers/x", object{}, "post_endpoint"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "ftp://x/"}, "post_endpoint"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://u:p@x/"}, "post_endpoint"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://{source_id}/"}, "post_endpoint"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "status_endpoint": "http://{source_id}/{message_id}"}, "status_endpoint"},
		{
			400, "PUT", "/v1/receivers/x",
			object{"post_endpoint": "http://x/", "status_endpoint": "http://x/{messageid}"},
			`status_endpoint: URL has "{messageid}"`,
		},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/{message_id}"}, `post_endpoint: URL has "{message_id}"`},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x:0/"}, "port from 1 to 65535"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x:65536/"}, "port from 1 to 65535"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "status_endpoint": "http://x:99999/"}, "port from 1 to 65535"},
		{
			400, "PUT", "/v1/receivers/x",
			object{"post_endpoint": "http://x/" + strings.Repeat("x", 4<<10)},
			"post_endpoint: it has 4105 bytes: give 4096 at most",
		},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "order": "random"}, "order"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "unknown_outcome": "?"}, "unknown_outcome"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "timeout": 0}, "timeout"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "window_size": -1}, "window_size"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "rate_limit": -1}, "rate_limit"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "max_retries": -1}, "max_retries"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "ttl": 1e300}, "ttl"},
		{400, "PUT", "/v1/receivers/x", object{"post_endpoint": "http://x/", "speed": 1}, "speed"},
		{400, "PUT", "/v1/senders/x", object{"sources": []string{""}}, "token"},
		{400, "PUT", "/v1/senders/x", object{"sources": []string{""}, "token": "a b"}, "without spaces"},
		{400, "PUT", "/v1/senders/x", object{"sources": []string{""}, "token": "a\u00a0b"}, "without spaces"},
		{400, "PUT", "/v1/senders/x", object{"sources": []string{""}, "token": "a\x01b"}, "control characters"},
		{400, "PUT", "/v1/senders/x", object{"token": "t"}, "sources"},
		{400, "PUT", "/v1/senders/x", object{"token": "t", "sources": []string{""}, "callback_endpoint": "nowhere"}, "callback_endpoint"},
		{400, "PUT", "/v1/senders/x", object{"token": "t", "sources": []string{""}, "callback_endpoint": "http://x:0/"}, "callback_endpoint"},
		{400, "GET", "/v1/failed?limit=0", nil, "limit"},
		{400, "GET", "/v1/failed?cursor=x", nil, "cursor"},
		{400, "GET", "/v1/failed?since=yesterday", nil, "since"},
		{400, "GET", "/v1/failed?until=tomorrow", nil, "until"},
		{400, "POST", "/v1/failed:purge", object{"filter": object{"until": "-1h"}}, "until"},
		{400, "GET", "/v1/failed?recvr=ci", nil, `"recvr" with value "ci" is not known: give one of receiver`},
		{400, "GET", "/v1/failed?stage=to_recvr", nil, `stage: "to_recvr" is none of [from_sender`},
		{400, "GET", "/v1/failed?reason=permanent", nil, `reason: "permanent" is none of [PERMANENT`},
		{400, "POST", "/v1/failed:purge", object{"filter": object{"reason": "PERMANENTLY"}}, "reason"},
		{400, "POST", "/v1/failed:redrive", object{"ids": make([]string, 10_001)}, "10000 are the most"},
		{400, "POST", "/v1/failed:redrive", object{}, "ids or filter"},
		{400, "POST", "/v1/failed:redrive", object{"ids": []string{"x"}}, "ids"},
		{400, "POST", "/v1/failed:skip", object{"filter": object{}, "rate": -1}, "rate"},
		{404, "GET", "/v1/operations/none", nil, "none"},
		{404, "DELETE", "/v1/operations/none", nil, "none"},
	} {
		answer := s.want(tt.status, tt.method, tt.path, adminToken, tt.body)
		require.Contains(t, answer["error"].(object)["message"], tt.want, "case %d", i)
	}
	require.Empty(t, s.want(200, "GET", "/v1/failed", adminToken, nil)["items"])
}

// IDs with unusual characters are returned unchanged by every route.
func TestOddIDs(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, nil)
	s.receiver(url.PathEscape("c/i %"), r.URL, nil)
	odd := []string{"...", "a/b", "a//b", "%2F", " ", "ä€𝄞", "a.b.*.>", "\x00", "a\r\nb", "?x=1&y#z", "=41", "{source_id}", strings.Repeat("€", 85)}
	for _, id := range odd {
		answer := s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message(id, id, "c/i %"))
		require.Equal(t, id, answer["source_id"])
		o := s.status(url.PathEscape(id), url.PathEscape(id))
		require.Equal(t, id, o["message_id"])
		got := r.list()
		source, _, ok := strings.Cut(got[len(got)-1].Header.Get("Webhook-Id"), "/")
		require.True(t, ok)
		decoded, err := url.PathUnescape(source)
		require.NoError(t, err)
		require.Equal(t, id, decoded)
	}
	require.Equal(t, len(odd), r.count())
}

// A receiver that answers later gets any ID unchanged, in the query and in the path of its status endpoint.
func TestOddIDsInStatusEndpoints(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	var receiver client.Receiver
	receiver.Accept = func(context.Context, client.Delivery) error { return nil }
	receiver.Result = func(_ context.Context, source, id string) (any, bool, error) { return source + "|" + id, true, nil }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/status/"); ok {
			source, id, _ := strings.Cut(rest, "/")
			var errs [2]error
			source, errs[0] = url.PathUnescape(source)
			id, errs[1] = url.PathUnescape(id)
			_ = json.NewEncoder(w).Encode(source + "|" + id + fmt.Sprint(errors.Join(errs[:]...)))
			return
		}
		receiver.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s.receiver("query", srv.URL, object{"status_endpoint": srv.URL + client.StatusPath})
	s.receiver("path", srv.URL, object{"status_endpoint": srv.URL + "/status/{source_id}/{message_id}"})
	odd := []string{"a+b", "a&message=x", "c=", "a b", "%2B", "...", "a/b", "x;y", "#", "?", "ä€", "$@:"}
	for _, id := range odd {
		s.want(202, "POST", "/v1/messages", adminToken, message("q", id, "query"))
		s.want(202, "POST", "/v1/messages", adminToken, message(id, "p", "path"))
	}
	for _, id := range odd {
		answer := s.want(200, "GET", "/v1/messages/q/"+client.PathEscape(id)+"/response?wait=20s", adminToken, nil)
		require.Equal(t, "q|"+id, answer["response"])
		answer = s.want(200, "GET", "/v1/messages/"+client.PathEscape(id)+"/p/response?wait=20s", adminToken, nil)
		require.Equal(t, id+"|p<nil>", answer["response"])
	}
}

func TestBatchAnswersInOrder(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	lines := []string{
		`{"source_id":"a","message_id":"1","receiver":"ci","payload":1}`, `{`, `{"source_id":"a","message_id":"1","receiver":"ci","payload":1}`,
		`{"source_id":"a","message_id":"1","receiver":"ci","payload":2}`, `{"source_id":"a","message_id":"2","receiver":"none","payload":2}`,
	}
	code, body := s.call("POST", "/v1/messages:batch", adminToken, strings.Join(lines, "\n"))
	require.Equal(t, http.StatusOK, code)
	var codes []string
	for line := range strings.Lines(string(body)) {
		var result struct {
			ID    string `json:"message_id"`
			Error struct{ Code string }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &result))
		codes = append(codes, result.ID+result.Error.Code)
	}
	require.Equal(t, []string{"1", "bad_request", "1", "conflict", "not_found"}, codes)
	s.awaitStatus("a", "1", "DONE")
	require.Equal(t, 1, r.count())
}

func TestIngestOverNATS(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	nc := srv.Connect(t)
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	publish := func(source, id, receiver, payload string) {
		m := nats.NewMsg("relay.from_sender." + source)
		m.Data = []byte(payload)
		m.Header.Set("Relay-Message-Id", id)
		m.Header.Set("Relay-Receiver", receiver)
		_, err := nc.RequestMsg(m, 5*time.Second)
		require.NoError(t, err)
	}
	publish("github.com/acme", "1", "ci", `{"a":1}`)
	publish("a%20b", "2", "ci", "not JSON")
	publish("github.com/acme", "1", "ci", `{"a":1}`)
	publish("x", "3", "nobody", "1")
	publish("x", "", "ci", "1")
	eventually(t, func() bool {
		return s.mayHave("github.com%2Facme", "1", "DONE") && s.mayHave("a%20b", "2", "DONE") && s.mayHave("x", "3", "FAILED")
	}, "not all end")
	require.Equal(t, 2, r.count())
	eventually(t, func() bool { return len(s.want(200, "GET", "/v1/failed", adminToken, nil)["items"].([]any)) == 2 }, "two are on the list")
	items := s.want(200, "GET", "/v1/failed?reason=MALFORMED", adminToken, nil)["items"].([]any)
	require.Len(t, items, 1)
	require.Equal(t, "UNKNOWN_RECEIVER", s.status("x", "3")["error"].(object)["code"])
}

// A message on a subject that is not UTF-8 is on the list, and can be taken off it.
func TestMessageOnASubjectThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	m := nats.NewMsg("relay.from_sender.caf\xe9")
	m.Header.Set("Relay-Message-Id", "1")
	m.Header.Set("Relay-Receiver", "ci")
	_, err := srv.Connect(t).RequestMsg(m, 5*time.Second)
	require.NoError(t, err)
	eventually(t, func() bool { return len(s.failed("reason=MALFORMED")) == 1 }, "it is not on the list")
	require.EqualValues(t, 1, s.operate("purge", object{"filter": object{}})["done"])
	require.Empty(t, s.failed(""))
}

// A record that cannot be decoded blocks no others: a message with its ID is a conflict, and later messages of the source are
// delivered.
func TestRecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	s.receiver("ci", newPeer(t, nil).URL, nil)
	_, err := srv.Connect(t).Request("$KV.relay_messages.a.1", []byte("{"), 5*time.Second)
	require.NoError(t, err)
	s.want(409, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", "2", "ci"))
}

func (s *site) mayHave(source, id, status string) bool {
	code, body := s.call("GET", "/v1/messages/"+source+"/"+id, adminToken, nil)
	return code == 200 && strings.Contains(string(body), `"status":"`+status+`"`)
}

// Addresses that only this machine or network can reach are refused when the listener is not on loopback alone.
func TestForbiddenAddresses(t *testing.T) {
	t.Parallel()
	refused := strings.Fields(`127.0.0.1 127.0.0.2 127.1.2.3 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255
		192.168.0.1 192.168.255.255 169.254.0.1 169.254.169.254 169.254.170.2 100.64.0.1 100.127.255.255 192.0.0.1 192.0.0.170 192.0.2.1
		192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
		::1 :: ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:192.168.1.1 ::ffff:0.0.0.0 ::ffff:100.64.0.1
		fe80::1 febf::1 fc00::1 fd00::1 fd00:ec2::254 ff02::1 ff05::2 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1
		2001::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe:: 2002:c0a8:101:: 3fff::1 5f00::1 fec0::1 2001:10::1 2001:20::1
		::127.0.0.1 ::10.0.0.1 ::169.254.169.254 ::ffff:0:127.0.0.1`)
	require.GreaterOrEqual(t, len(refused), 60)
	for _, text := range refused {
		require.ErrorIs(t, webhook.Policy{}.Check(netip.MustParseAddr(text)), webhook.ErrForbiddenAddress, text)
	}
	for _, text := range strings.Fields("8.8.8.8 1.1.1.1 172.32.0.1 100.128.0.1 2606:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8") {
		require.NoError(t, webhook.Policy{}.Check(netip.MustParseAddr(text)), text)
	}
	s := startSite(t, func(c *Config) { c.Relay.Networks = "public" })
	reached := newPeer(t, nil)
	port := reached.URL[strings.LastIndex(reached.URL, ":"):]
	for i, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f000001", "2130706433", "127.1", "[::1]", "0"} {
		name := fmt.Sprint("r", i)
		s.receiver(name, "http://"+host+port, object{"max_retries": 0})
		s.want(202, "POST", "/v1/messages", adminToken, message("a", name, name))
		s.awaitStatus("a", name, "FAILED")
	}
	require.Zero(t, reached.count())
}

// A page of another site cannot use a browser to change a relay without an admin token, nor read it through a host name that
// resolves to this machine.
func TestPagesOfOtherSites(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", adminToken} {
		s := startSite(t, func(cfg *Config) { cfg.Admin.Token = token })
		for _, tt := range []struct{ method, path, host, origin string }{
			{"POST", "/v1/failed:purge", "", "http://other.example"},
			{"GET", "/v1/receivers", "other.example", ""},
		} {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, s.url+tt.path, strings.NewReader("{}"))
			require.NoError(t, err)
			req.Host = tt.host
			if tt.origin != "" {
				req.Header.Set("Origin", tt.origin)
			}
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, token == "", resp.StatusCode == http.StatusForbidden, "%s %s: %d", tt.method, tt.path, resp.StatusCode)
		}
	}
}
