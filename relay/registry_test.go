package relay

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/test/servertest"
)

// The watch of the registry has stopped in a process, for instance because its server died. The process does not know a sender
// that another has created. It still makes the callbacks to that sender.
func TestSenderThatAProcessDoesNotKnowOf(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	external := func(c *Config) { c.NATS.URL = srv.URL() }
	r, callback := newPeer(t, nil), newPeer(t, nil)
	behind := startSite(t, external)
	behind.receiver("ci", r.URL, nil)
	behind.sender("back", "none", "back/")
	behind.want(204, "DELETE", "/v1/senders/back", adminToken, nil)
	behind.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("any", "1", "ci")) // it has the pin from now on
	stopWatches(t, srv)
	s := startSite(t, external)
	s.sender("git", callback.URL, "git/")
	s.sender("back", callback.URL, "back/")
	for i, source := range []string{"git%2Fa", "back%2Fa"} {
		sender := source[:len(source)-len("%2Fa")]
		s.want(202, "POST", "/v1/messages", sender+"-token", message(sender+"/a", "1", "ci"))
		s.awaitStatus(source, "1", "DONE")
		require.Equal(t, i+1, callback.count(), "%s gets no callback", sender)
	}
}

// stopWatches removes the consumers of the watches of all processes, which notice it by missing heartbeats.
func stopWatches(t *testing.T, srv *servertest.Server) {
	js := testJetStream(t, srv.Connect(t))
	bucket, err := js.Stream(t.Context(), "KV_relay_receiver_config")
	require.NoError(t, err)
	for name := range bucket.ConsumerNames(t.Context()).Name() {
		require.NoError(t, bucket.DeleteConsumer(t.Context(), name))
	}
}

// The watch of the registry has stopped in a process that knows that a receiver was deleted, and not that it was configured
// again. Messages for it that come later do not fail.
func TestReceiverThatIsThereAgain(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	external := func(c *Config) { c.NATS.URL = srv.URL() }
	release := make(chan struct{})
	hangs := newPeer(t, func(int, seen) (int, string) { <-release; return 200, "" })
	defer close(release)
	behind := startSite(t, external)
	behind.receiver("ci", hangs.URL, nil)
	behind.want(202, "POST", "/v1/messages", adminToken, message("any", "1", "ci"))
	eventually(t, func() bool { return hangs.count() == 1 }, "nothing is sent") // it has the pin, and its lane stays
	behind.want(204, "DELETE", "/v1/receivers/ci", adminToken, nil)
	stopWatches(t, srv)
	s := startSite(t, external)
	s.receiver("ci", newPeer(t, nil).URL, nil)
	s.want(200, "POST", "/v1/messages?wait=40s", adminToken, message("any", "2", "ci"))
	require.Equal(t, "DONE", s.status("any", "2")["status"])
}

// A newer build, or a person, has stored a receiver that this build cannot decode. A PUT is refused, and does not try for ever.
func TestReceiverThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	js := testJetStream(t, srv.Connect(t))
	_, err := js.Publish(t.Context(), "$KV.relay_receiver_config.receiver.ci", []byte("{"))
	require.NoError(t, err)
	o := s.want(503, "PUT", "/v1/receivers/ci", adminToken, object{"post_endpoint": "http://127.0.0.1:1"})
	require.Equal(t, "unavailable", o["error"].(object)["code"])
	require.Contains(t, o["error"].(object)["message"], `"ci": what is stored cannot be decoded`)
}

// A sender that is larger than the store accepts is refused. The store's JSON has six bytes for a character such as <.
func TestSenderThatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	sources := slices.Repeat([]string{strings.Repeat("<", 256)}, 5000)
	s.want(413, "PUT", "/v1/senders/git", adminToken, `{"token":"t","sources":["`+strings.Join(sources, `","`)+`"]}`)
	s.want(404, "GET", "/v1/senders/git", adminToken, nil)
}

// A PATCH keeps what it does not name.
func TestPatchKeepsTheRest(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", "http://127.0.0.1:9/", object{"timeout": 0.29, "secrets": []string{webhook.NewSecret()}})
	for _, wrong := range []object{{"timeout": -1}, {"timeuot": 1}, {"post_endpoint": ""}} {
		s.want(400, "PATCH", "/v1/receivers/ci", adminToken, wrong)
	}
	got := s.want(200, "PATCH", "/v1/receivers/ci", adminToken, object{"max_retries": 3})
	require.InDelta(t, 0.29, got["timeout"], 1e-12)
	require.EqualValues(t, []float64{3, 1}, []float64{got["max_retries"].(float64), got["secret_count"].(float64)})
	s.want(404, "PATCH", "/v1/senders/git", adminToken, object{"sources": []string{"a"}})
	s.want(200, "PUT", "/v1/senders/git", adminToken, object{"token": "t", "sources": []string{"a"}, "callback_endpoint": "http://127.0.0.1:9/"})
	require.Equal(t, "http://127.0.0.1:9/", s.want(200, "PATCH", "/v1/senders/git", adminToken, object{"sources": []string{"b"}})["callback_endpoint"])
	require.Equal(t, []any{"b"}, s.want(200, "PATCH", "/v1/senders/git", adminToken, object{"callback_endpoint": "none"})["sources"])
	s.want(400, "PATCH", "/v1/senders/git", adminToken, object{"sources": []string{"c"}, "token": "a b"})
	require.Equal(t, []any{"b"}, s.want(200, "GET", "/v1/senders/git", adminToken, nil)["sources"], "a PATCH that is refused changes nothing")
}
