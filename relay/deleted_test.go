package relay

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

var goroutineCount = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// goroutines returns the number of goroutines in the relay's metrics.
func (s *site) goroutines() int {
	s.t.Helper()
	_, body := s.call("GET", "/metrics", adminToken, nil)
	found := goroutineCount.FindSubmatch(body)
	require.NotNil(s.t, found)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(s.t, err)
	return n
}

// insist repeats a request while the relay answers that its store is busy.
func (s *site) insist(want int, method, path string, body object) {
	s.t.Helper()
	code, answer := 0, []byte(nil)
	eventually(s.t, func() bool {
		var sent any
		if body != nil {
			sent = body
		}
		code, answer = s.call(method, path, adminToken, sent)
		return code != http.StatusServiceUnavailable
	}, "the store stays busy")
	if code == http.StatusOK && want == http.StatusAccepted || code == http.StatusNotFound && want == http.StatusNoContent {
		return // the previous request succeeded, and its answer was late
	}
	require.Equal(s.t, want, code, "%s %s: %s", method, path, answer)
}

// consumers returns the names of a stream's consumers.
func consumers(t *testing.T, js jetstream.JetStream, stream string) []string {
	t.Helper()
	st, err := js.Stream(t.Context(), stream)
	require.NoError(t, err)
	var names []string
	for name := range st.ConsumerNames(t.Context()).Name() {
		names = append(names, name)
	}
	return names
}

// Deleted receivers leave no goroutine, consumer or metric behind, also after a restart. A receiver with messages keeps its lane
// until they have failed. The test does not run beside others, whose goroutines would count too.
func TestDeletedReceiversAreCollected(t *testing.T) {
	receivers := 1000
	if testing.Short() {
		receivers = 20
	}
	srv := servertest.RunServer(t)
	js := testJetStream(t, srv.Connect(t))
	external := func(c *Config) {
		c.NATS.URL, c.Relay.Takeover = srv.URL(), DefaultConfig().Relay.Takeover
		c.Relay.Concurrency = 1 // a Consume starts its other workers when there are messages for them, and they stay
	}
	cfg := testConfig(t.TempDir())
	external(cfg)
	n, err := Start(t.Context(), cfg, testLog())
	require.NoError(t, err)
	s := &site{t, n.URL()}
	s.receiver("stays", newPeer(t, nil).URL, nil)
	s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", "first", "stays"))
	before := s.goroutines()
	for i := range receivers {
		s.insist(200, "PUT", fmt.Sprint("/v1/receivers/r", i), object{
			"post_endpoint": "http://127.0.0.1:9/", "paused": true, "status_endpoint": "http://127.0.0.1:9/{message_id}", "rate_limit": 5,
		})
		s.insist(202, "POST", "/v1/messages", message("a", fmt.Sprint(i), fmt.Sprint("r", i)))
	}
	eventually(t, func() bool { return len(consumers(t, js, "relay_to_receiver")) >= receivers }, "not every receiver has its consumer")
	for i := range receivers {
		s.insist(204, "DELETE", fmt.Sprint("/v1/receivers/r", i), nil)
	}
	for i := range receivers {
		o := s.awaitStatus("a", fmt.Sprint(i), "FAILED")
		require.Equal(t, "RECEIVER_DELETED", o["error"].(object)["code"])
	}
	collected := func() bool {
		left := append(consumers(t, js, "relay_to_receiver"), consumers(t, js, "relay_pending_from_receiver")...)
		return !slices.ContainsFunc(left, func(name string) bool { return name != "to_receiver_stays" })
	}
	eventually(t, collected, "the consumers of deleted receivers stay")
	eventually(t, func() bool { return s.goroutines() < before+20 }, "the goroutines of deleted receivers stay")
	_, body := s.call("GET", "/metrics", adminToken, nil)
	t.Logf("%d goroutines before, %d after %d receivers were deleted", before, s.goroutines(), receivers)
	require.NotRegexp(t, `relay_(backlog|oldest|pending|window|breaker|attempt|poll)\w*\{receiver="r\d`, string(body))

	require.NoError(t, n.Stop(context.Background()))
	s = startSite(t, external)
	s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", "last", "stays"))
	require.Less(t, s.goroutines(), before+20)
	require.True(t, collected(), "a restart makes them again")

	// A receiver with the name of a deleted one works like any other.
	again := newPeer(t, nil)
	s.receiver("r1", again.URL, nil)
	s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", "again", "r1"))
	require.Equal(t, 1, again.count())
}
