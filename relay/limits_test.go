package relay

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// Names in a path that are longer than any valid name are not found, and do not break the connection that all requests share.
func TestLongNamesInAPath(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", "http://127.0.0.1:9/", object{"paused": true})
	for _, long := range []string{strings.Repeat("x", 257), strings.Repeat("x", 5000), strings.Repeat("%E2%82%AC", 5000)} {
		for _, route := range []string{
			"GET /v1/messages/LONG/1", "GET /v1/messages/a/LONG", "GET /v1/messages/a/LONG/response?wait=1s", "GET /v1/receivers/LONG",
			"DELETE /v1/receivers/LONG", "GET /v1/senders/LONG", "DELETE /v1/senders/LONG", "GET /v1/operations/LONG", "DELETE /v1/operations/LONG",
		} {
			method, path, _ := strings.Cut(strings.Replace(route, "LONG", long, 1), " ")
			s.want(404, method, path, adminToken, nil)
		}
	}
	s.want(200, "GET", "/readyz", "", nil)
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
}

// Bodies and headers over their limits are refused as such.
func TestBodiesOverTheLimits(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(c *Config) { c.HTTP.MaxBodyBytes = 10_000 })
	s.receiver("ci", "http://127.0.0.1:9/", object{"paused": true})
	padding := strings.Repeat(" ", 5<<20)
	for _, tt := range []struct{ method, path, body string }{
		{"PUT", "/v1/receivers/x", padding},
		{"PUT", "/v1/senders/x", padding},
		{"POST", "/v1/failed:redrive", padding},
		{"POST", "/v1/messages", strings.Repeat(" ", 10_001)},
		{"POST", "/v1/messages:batch", strings.Repeat(" ", 65<<20)},
	} {
		answer := s.want(http.StatusRequestEntityTooLarge, tt.method, tt.path, adminToken, tt.body)
		require.Equal(t, "too_large", answer["error"].(object)["code"])
	}
	// Only the line of a batch that is too large is refused.
	code, body := s.call("POST", "/v1/messages:batch", adminToken,
		`{"source_id":"a","message_id":"1","receiver":"ci","payload":"`+strings.Repeat("x",
			10_000)+`"}`+"\n"+`{"source_id":"a","message_id":"2","receiver":"ci","payload":1}`)
	require.Equal(t, http.StatusOK, code)
	require.Regexp(t, `^{"error":{"code":"too_large".*}}\n{"source_id":"a","message_id":"2","status":"ARRIVED"}\n$`, string(body))
	req, err := http.NewRequest(http.MethodGet, s.url+"/healthz", nil)
	require.NoError(t, err)
	req.Header.Set("X-Long", strings.Repeat("x", 80<<10))
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
	s.want(400, "POST", "/v1/messages", adminToken, object{
		"source_id": "a", "message_id": "3", "receiver": "ci", "payload": 1, "headers": object{"X-Long": strings.Repeat("x", 9<<10), "X-More": ""},
		"more": 1,
	})
}

// Text that is not UTF-8 is refused wherever it could become an ID, a name or a payload.
func TestBadUTF8(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", "http://127.0.0.1:9/", object{"paused": true})
	for _, bad := range []string{"\xff", "\xc3(", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80"} {
		for _, body := range []string{
			`{"source_id":"` + bad + `","message_id":"1","receiver":"ci","payload":1}`,
			`{"source_id":"a","message_id":"1","receiver":"ci","payload":"` + bad + `"}`,
			`{"source_id":"a","message_id":"1","receiver":"ci","payload":1,"headers":{"X":"` + bad + `"}}`,
		} {
			s.want(400, "POST", "/v1/messages", adminToken, body)
			_, answer := s.call("POST", "/v1/messages:batch", adminToken, body)
			require.Contains(t, string(answer), "not UTF-8")
		}
		s.want(400, "PUT", "/v1/receivers/x", adminToken, `{"post_endpoint":"http://x/`+bad+`"}`)
		s.want(400, "PUT", "/v1/senders/x", adminToken, `{"token":"t","sources":["`+bad+`"]}`)
		s.want(400, "POST", "/v1/failed:skip", adminToken, `{"filter":{"source":"`+bad+`"}}`)
	}
	for _, path := range []string{"/v1/messages/%FF/1", "/v1/messages/a/%C3(", "/v1/receivers/%ED%A0%80", "/v1/senders/%FF", "/v1/operations/%FF"} {
		s.want(400, "GET", path, adminToken, nil)
	}
	// Half a surrogate pair is valid UTF-8 as an escape. It would make one ID of several.
	s.want(400, "POST", "/v1/messages", adminToken, `{"source_id":"\ud800","message_id":"1","receiver":"ci","payload":1}`)
	s.want(202, "POST", "/v1/messages", adminToken, `{"source_id":"a","message_id":"1","receiver":"ci","payload":"\ud800"}`)
}

// Two names of one header are refused: it would be random which of them is sent.
func TestHeaderGivenTwice(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", "http://127.0.0.1:9/", object{"paused": true})
	m := message("a", "1", "ci")
	m["headers"] = object{"x-event": "1", "X-Event": "2"}
	answer := s.want(400, "POST", "/v1/messages", adminToken, m)
	require.Contains(t, answer["error"].(object)["message"], "X-Event")
}

// A receiver and a sender with the longest valid names get their messages and callbacks.
func TestLongestNames(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	receiver, callback := asyncPeer(t), newPeer(t, nil)
	for _, letter := range []string{"x", "\x01"} {
		name := strings.Repeat(letter, 256)
		path := strings.ReplaceAll(name, "\x01", "%01")
		s.want(200, "PUT", "/v1/receivers/"+path, adminToken, object{"post_endpoint": receiver.URL, "status_endpoint": receiver.URL, "retry_after": 0.05})
		s.want(200, "PUT", "/v1/senders/"+path, adminToken, object{"callback_endpoint": callback.URL, "token": "t", "sources": []string{letter}})
		s.want(202, "POST", "/v1/messages", adminToken, message(name, name, name))
		s.awaitStatus(path, path, "DONE")
	}
	require.Equal(t, 2, callback.count())
}

// A NATS message that cannot be decoded goes to the failed list, whatever its subject. It does not block others.
func TestLongSubjectsOverNATS(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	nc := srv.Connect(t)
	publish := func(source, id string) {
		m := nats.NewMsg("relay.from_sender." + source)
		m.Header.Set("Relay-Message-Id", id)
		m.Header.Set("Relay-Receiver", "ci")
		m.Data = []byte("1")
		_, err := nc.RequestMsg(m, 5*time.Second)
		require.NoError(t, err)
	}
	publish(strings.Repeat("é.", 1000)+"x", "1")
	publish("a", strings.Repeat("x", 3000))
	publish("a", "2")
	eventually(t, func() bool {
		return s.mayHave("a", "2", "DONE") && len(s.want(200, "GET", "/v1/failed?reason=MALFORMED", adminToken, nil)["items"].([]any)) == 2
	}, "the long ones hold the others up")
}

// A payload that the server would accept, and the relay could not pass on, is refused at once.
func TestPayloadsOverTheServersLimit(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL, c.HTTP.MaxBodyBytes = srv.URL(), 8<<20 })
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	nc := srv.Connect(t)
	m := message("a", "1", "ci")
	m["payload"] = strings.Repeat("x", 1<<20)
	s.want(413, "POST", "/v1/messages", adminToken, m)
	m["payload"] = strings.Repeat("x", 700<<10)
	s.want(202, "POST", "/v1/messages", adminToken, m)
	publish := nats.NewMsg("relay.from_sender.a")
	publish.Header.Set("Relay-Message-Id", "2")
	publish.Header.Set("Relay-Receiver", "ci")
	publish.Data = make([]byte, nc.MaxPayload()-300)
	_, err := nc.RequestMsg(publish, 5*time.Second)
	require.NoError(t, err)
	eventually(t, func() bool {
		return s.mayHave("a", "1", "DONE") && len(s.want(200, "GET", "/v1/failed?reason=MALFORMED", adminToken, nil)["items"].([]any)) == 1
	}, "one of them is tried for ever")
	require.Equal(t, 1, r.count())
}

// A client of the account that writes the window of a receiver, again and again, delays its messages by one window at most: the process
// that sends asks the server whether it still has the pin, and keeps what it has counted.
func TestForgedWindow(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t, servertest.WithAttackers("$KV.relay_state.window.*"))
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	r := newPeer(t, nil)
	const limit, posts, window = 3, 15, time.Second
	s.receiver("ci", r.URL, object{"rate_limit": limit, "window_size": window.Seconds()})
	nc := srv.Attacker(t, "$KV.relay_state.window.*")
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			forged := []string{`{"pin":"forged"}`, `{"stopped":true}`, `{`, `{"stopped":true,"posts":[{"age":-4611686018427387904,"count":1099511627776}]}`}
			_, err := nc.Request("$KV.relay_state.window.ci", []byte(forged[i%len(forged)]), waitLong)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
	for i := range posts {
		s.want(202, "POST", "/v1/messages", adminToken, message("a", fmt.Sprint(i), "ci"))
	}
	eventually(t, func() bool { return r.count() == posts }, "the messages wait for ever")
	arrivals := r.list()
	for i := limit; i < posts; i++ {
		require.GreaterOrEqual(t, arrivals[i].At.Sub(arrivals[i-limit].At), window)
	}
}

// An entry of the registry that is not the relay's changes nothing, such as the confirmation of a message that the server has published there.
func TestForgedRegistryEntry(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t, servertest.WithAttackers("$KV.relay_receiver_config.receiver.ci"))
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	s.receiver("ci", "http://127.0.0.1:9/", nil)
	s.receiver("bank", "http://127.0.0.1:9/", nil)
	nc := srv.Attacker(t, "$KV.relay_receiver_config.receiver.ci")
	for _, forged := range []string{`{"stream":"relay_from_sender","seq":1}`, `{"name":"bank","post_endpoint":"http://127.0.0.1:1/"}`, `{`} {
		_, err := nc.Request("$KV.relay_receiver_config.receiver.ci", []byte(forged), waitLong)
		require.NoError(t, err)
	}
	s.receiver("later", "http://127.0.0.1:9/", nil) // when it is known, the forged entries were read
	for _, name := range []string{"ci", "bank"} {
		require.Equal(t, "http://127.0.0.1:9/", s.want(200, "GET", "/v1/receivers/"+name, adminToken, nil)["post_endpoint"], name)
	}
}
