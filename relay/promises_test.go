package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/test/servertest"
)

// stored counts the messages of all streams of a server that contain a text.
func stored(t *testing.T, js jetstream.JetStream, text string) (n int) {
	t.Helper()
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		stream, err := js.Stream(t.Context(), info.Config.Name)
		require.NoError(t, err)
		for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
			if m, err := stream.GetMsg(t.Context(), seq); err == nil && bytes.Contains(m.Data, []byte(text)) {
				n++
			}
		}
	}
	require.NoError(t, streams.Err())
	return n
}

// Skip keeps the payload of a message until the message is removed. After a purge no stored message has it.
func TestPurgeDropsThePayload(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	js := testJetStream(t, srv.Connect(t))
	r := newPeer(t, func(int, seen) (int, string) { return 400, "" })
	s.receiver("ci", r.URL, nil)
	for verb, left := range map[string]int{"skip": 1, "purge": 0} {
		m, text := message("a", verb, "ci"), "the payload to "+verb
		m["payload"] = text
		s.want(202, "POST", "/v1/messages", adminToken, m)
		eventually(t, func() bool { return len(s.failed("source=a")) == 1 }, "it is not on the list")
		eventually(t, func() bool { return stored(t, js, text) == 1 }, "only the list has a payload that failed")
		require.EqualValues(t, 1, s.operate(verb, object{"filter": object{"source": "a"}})["done"])
		require.Empty(t, s.failed(""))
		require.Equal(t, left, stored(t, js, text), verb)
	}
}

// A receiver or sender has a consumer in each of these streams. Servers allow 1,000 in a stream unless it has another limit.
func TestStreamsTakeManyConsumers(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	js := testJetStream(t, srv.Connect(t))
	for _, queue := range []string{"to_receiver", "pending_from_receiver", "to_sender"} {
		stream, err := js.Stream(t.Context(), "relay_"+queue)
		require.NoError(t, err)
		require.GreaterOrEqual(t, stream.CachedInfo().Config.MaxConsumers, 20_000, queue)
	}
}

// A message that is larger than an operator's limit of a stream can be sent again, since the limit can be raised.
func TestMessageOverALimitOfAStream(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	js := testJetStream(t, srv.Connect(t))
	s.receiver("ci", newPeer(t, nil).URL, nil)
	limit := func(most int32) {
		stream, err := js.Stream(t.Context(), "relay_to_receiver")
		require.NoError(t, err)
		c := stream.CachedInfo().Config
		c.MaxMsgSize = most
		_, err = js.UpdateStream(t.Context(), c)
		require.NoError(t, err)
	}
	message := object{"source_id": "s", "message_id": "1", "receiver": "ci", "payload": strings.Repeat("x", 4000)}
	limit(2000)
	s.want(503, "POST", "/v1/messages", adminToken, message)
	limit(-1)
	s.want(200, "POST", "/v1/messages", adminToken, message)
	s.awaitStatus("s", "1", "DONE")
}

// An operator may limit the streams of an existing server. When they are full, messages are refused, and all accepted ones are
// delivered.
func TestFullStreamsDropNothing(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	js := testJetStream(t, srv.Connect(t))
	for _, queue := range []string{"from_sender", "to_receiver"} {
		stream, err := js.Stream(t.Context(), "relay_"+queue)
		require.NoError(t, err)
		c := stream.CachedInfo().Config
		c.MaxMsgs = 10
		_, err = js.UpdateStream(t.Context(), c)
		require.NoError(t, err)
	}
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, object{"paused": true})
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, `{"source_id":"s%d","message_id":"1","receiver":"ci","payload":1}`+"\n", i)
	}
	code, answers := s.call("POST", "/v1/messages:batch", adminToken, lines.String())
	require.Equal(t, 200, code)
	var accepted []string
	for line := range strings.Lines(string(answers)) {
		var o object
		require.NoError(t, json.Unmarshal([]byte(line), &o))
		if o["status"] == "ARRIVED" {
			accepted = append(accepted, o["source_id"].(string))
			continue
		}
		require.Equal(t, "unavailable", o["error"].(object)["code"], line)
	}
	require.NotEmpty(t, accepted)
	require.Less(t, len(accepted), 300)
	s.receiver("ci", r.URL, nil)
	for _, source := range accepted {
		s.awaitStatus(source, "1", "DONE")
	}
}

// A 202 of a receiver without a status endpoint is an empty response, whatever its body is.
func TestAcceptedWithoutAStatusEndpoint(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r, callback := newPeer(t, func(int, seen) (int, string) { return 202, `{"queued":true}` }), newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	s.sender("git", callback.URL, "")
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	o := s.awaitStatus("a", "1", "DONE")
	require.Contains(t, o, "response")
	require.Nil(t, o["response"])
	require.Equal(t, 1, r.count())
	require.JSONEq(t, `{"source_id":"a","message_id":"1","status":"DONE","response":null}`, callback.list()[0].Body)
}

// By default receivers and callbacks may be on loopback when the listener is, and only on public addresses otherwise.
func TestNetworksByTheListener(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listener, networks string
		reached            bool
	}{
		{"127.0.0.1:0", "auto", true},
		{"localhost:0", "auto", true},
		{"[::1]:0", "auto", true},
		{"0.0.0.0:0", "auto", false},
		{"[::]:0", "auto", false},
		{":0", "auto", false},
		{"127.0.0.1:0", "public", false},
		{"0.0.0.0:0", "any", true},
		{"0.0.0.0:0", "127.0.0.0/8", true},
		{"127.0.0.1:0", "10.0.0.0/8", false},
	} {
		s := startSite(t, func(c *Config) { c.HTTP.Listener, c.Relay.Networks = tt.listener, tt.networks })
		r, callback := newPeer(t, nil), newPeer(t, nil)
		s.receiver("ci", r.URL, object{"max_retries": 0})
		s.sender("git", callback.URL, "")
		s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
		if tt.reached {
			s.awaitStatus("a", "1", "DONE")
			require.Equal(t, 1, r.count(), tt)
			require.Equal(t, 1, callback.count(), tt)
			continue
		}
		o := s.awaitStatus("a", "1", "FAILED")
		require.Contains(t, fmt.Sprint(o["attempts"]), "127.0.0.1", tt)
		require.Zero(t, r.count(), tt)
	}
}

// The defaults of a receiver are those of the OpenAPI document.
func TestDefaultsOfAReceiver(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.want(200, "PUT", "/v1/receivers/ci", adminToken, object{"post_endpoint": "http://127.0.0.1:9/"})
	got := s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)
	want := object{
		"rate_limit": 0.0, "window_size": 1.0, "retry_after": 5.0, "max_retries": 5.0, "timeout": 30.0, "order": "none",
		"unknown_outcome": "at_least_once", "ttl": 0.0, "paused": false, "status_endpoint": "",
	}
	var document struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]object }
		}
	}
	_, data := s.call("GET", "/openapi.json", "", nil)
	require.NoError(t, json.Unmarshal(data, &document))
	for name, value := range want {
		require.Equal(t, value, got[name], name)
		require.Equal(t, value, document.Components.Schemas["ReceiverConfig"].Properties[name]["default"], "the document, of %s", name)
	}
}

// A deleted sender has no access. If it is PUT again without token or secrets, it has its earlier ones. An empty list of secrets
// removes them.
func TestTokenAndSecretsOfASender(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r, callback := newPeer(t, nil), newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	put := func(body object) object {
		body["sources"], body["callback_endpoint"] = []string{"a"}, callback.URL
		return s.want(200, "PUT", "/v1/senders/git", adminToken, body)
	}
	signed := func(id string) bool {
		n := callback.count()
		s.want(202, "POST", "/v1/messages", "first", message("a", id, "ci"))
		eventually(t, func() bool { return callback.count() > n }, "the callback is missing")
		return callback.list()[n].Header.Get("Webhook-Signature") != ""
	}
	require.EqualValues(t, 1, put(object{"token": "first", "secrets": []string{webhook.NewSecret()}})["secret_count"])
	require.True(t, signed("1"))
	require.EqualValues(t, 1, put(object{})["secret_count"])
	require.True(t, signed("2"))
	require.EqualValues(t, 0, put(object{"secrets": []string{}})["secret_count"])
	require.False(t, signed("3"))
	put(object{"token": "second"})
	s.want(401, "POST", "/v1/messages", "first", message("a", "4", "ci"))
	s.want(202, "POST", "/v1/messages", "second", message("a", "4", "ci"))

	code, _ := s.call("DELETE", "/v1/senders/git", adminToken, nil)
	require.Equal(t, 204, code)
	s.want(404, "GET", "/v1/senders/git", adminToken, nil)
	for _, token := range []string{"first", "second"} {
		s.want(401, "POST", "/v1/messages", token, message("a", "5", "ci"))
		s.want(401, "GET", "/v1/messages/a/1", token, nil)
	}
	s.want(400, "PUT", "/v1/senders/git", adminToken, object{"sources": []string{"a"}})
}

// A status endpoint may hang, reset, redirect, drip or flood: it is polled again, and its second answer is the response. If it
// always misbehaves, the message fails.
func TestHostileStatusEndpoints(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(c *Config) { c.Relay.MaxResponse, c.Relay.PollDeadline = 1000, 3*time.Second })
	h := newHostile(t)
	accepts := newPeer(t, func(int, seen) (int, string) { return 202, "" })
	kinds := []string{"hang", "reset", "redirect", "drip"}
	for _, kind := range append(kinds, "flood") {
		for _, path := range []string{"/once/", "/always/"} {
			name := strings.Trim(path, "/") + "-" + kind
			s.receiver(name, accepts.URL, object{"status_endpoint": h.URL + path + kind, "timeout": 0.5})
			s.want(202, "POST", "/v1/messages", adminToken, message("a", name, name))
		}
	}
	for _, kind := range kinds {
		o := s.awaitStatus("a", "once-"+kind, "DONE")
		require.Nil(t, o["response"], kind)
		require.GreaterOrEqual(t, h.count("/once/"+kind), 2, kind) // the second may take too long on a busy machine
		o = s.awaitStatus("a", "always-"+kind, "FAILED")
		require.Equal(t, "NO_RESPONSE", o["error"].(object)["code"], kind)
	}
	for _, name := range []string{"once-flood", "always-flood"} {
		o := s.awaitStatus("a", name, "DONE")
		require.Equal(t, true, o["truncated"], "a response that is too long is cut, and marked as truncated")
		require.Len(t, o["response"], 1000)
	}
	require.Zero(t, h.count("/target"), "a redirect is not followed")
	require.Less(t, h.written.Load(), int64(2*maxBuffered))
}

// goroutines counts the goroutines of this module and of the server by the function that started them.
func goroutines() map[string]int {
	buffer := make([]byte, 64<<20)
	found := map[string]int{}
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		_, by, ok := strings.Cut(stack, "created by ")
		by, _, _ = strings.Cut(by, " in goroutine")
		if ok && !strings.HasPrefix(by, "testing.") && (strings.Contains(stack, "jetpull") || strings.Contains(stack, "nats-io")) {
			found[by]++
		}
	}
	return found
}

// A stop during a request that waits and during an operation leaves no goroutine of the relay and its server. The test does not
// run beside others, which have goroutines of their own.
func TestStopLeavesNoGoroutine(t *testing.T) {
	run := func() {
		n, err := Start(t.Context(), testConfig(t.TempDir()), testLog())
		require.NoError(t, err)
		s := &site{t, n.URL()}
		h := newHostile(t)
		defer h.release()
		r := newPeer(t, func(int, seen) (int, string) { return 400, "" })
		s.receiver("ci", r.URL, nil)
		s.receiver("hole", h.URL+"/hang", object{"timeout": 600})
		s.sender("git", h.URL+"/hang", "b")
		s.batch("a", "ci", 20)
		eventually(t, func() bool { return len(s.failed("")) == 20 }, "not all are on the list")
		op := s.want(202, "POST", "/v1/failed:skip", adminToken, object{"filter": object{}, "rate": 5})
		eventually(t, func() bool { return len(s.failed("")) < 20 }, "the operation does not begin")
		answered := make(chan int, 1)
		go func() {
			code, _ := s.call("POST", "/v1/messages?wait=5m", adminToken, message("b", "1", "hole"))
			answered <- code
		}()
		eventually(t, func() bool { return h.count("/hang") == 1 }, "nothing hangs")
		require.Equal(t, "running", s.want(200, "GET", "/v1/operations/"+op["id"].(string), adminToken, nil)["state"])
		stopped := make(chan error, 1)
		go func() { stopped <- n.Stop(context.Background()) }()
		require.Equal(t, http.StatusAccepted, <-answered, "a request that waits is answered with how far the message is")
		h.release()
		require.NoError(t, <-stopped)
		h.Close()
		r.Close()
		http.DefaultClient.CloseIdleConnections()
	}
	before := goroutines()
	run()
	var left []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(left)
		}
	})
	eventually(t, func() bool {
		left = nil
		for by, n := range goroutines() {
			if n > before[by] {
				left = append(left, fmt.Sprintf("%d from %s", n-before[by], by))
			}
		}
		return len(left) == 0
	}, "goroutines are left")
}
