package relay

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// A receiver without messages has no goroutine and no consumer, both before its first message and after its last one. The test
// does not run beside others, whose goroutines would count too.
func TestIdleReceiversHaveNoGoroutine(t *testing.T) {
	receivers := 1000
	if testing.Short() {
		receivers = 60
	}
	srv := servertest.RunServer(t)
	js := testJetStream(t, srv.Connect(t))
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	peer := newPeer(t, nil)
	s.sender("git", peer.URL, "a")
	s.receiver("r0", peer.URL, nil)
	s.want(200, "POST", "/v1/messages?wait=20s", "git-token", message("a", "first", "r0"))
	before := s.goroutines()
	for i := range receivers {
		s.receiver(fmt.Sprint("r", i), peer.URL, object{"rate_limit": 1000, "order": []string{"none", "source", "receiver"}[i%3]})
	}
	t.Logf("%d goroutines with one receiver, %d with %d more", before, s.goroutines(), receivers)
	require.Less(t, s.goroutines(), before+20, "receivers without messages")
	for i := range receivers {
		s.want(202, "POST", "/v1/messages", "git-token", message("a", fmt.Sprint(i), fmt.Sprint("r", i)))
	}
	for i := range receivers {
		s.awaitStatus("a", fmt.Sprint(i), "DONE")
	}
	eventually(t, func() bool {
		return len(consumers(t, js, "relay_to_receiver"))+len(consumers(t, js, "relay_pending_from_receiver"))+len(consumers(t, js, "relay_to_sender")) == 0
	}, "consumers of idle receivers stay")
	eventually(t, func() bool { return s.goroutines() < before+20 }, "goroutines of idle receivers stay")
	_, body := s.call("GET", "/metrics", adminToken, nil)
	require.Equal(t, receivers, strings.Count(string(body), "\nrelay_backlog{"), "each has a backlog of 0")
	s.want(200, "POST", "/v1/messages?wait=20s", "git-token", message("a", "last", "r7"))
}

// The next process finds an entry whose consumer and process are gone.
func TestEntryWithoutConsumerIsFound(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	js := testJetStream(t, srv.Connect(t))
	cfg := testConfig(t.TempDir())
	cfg.NATS.URL = srv.URL()
	n, err := Start(t.Context(), cfg, testLog())
	require.NoError(t, err)
	s := &site{t, n.URL()}
	peer := newPeer(t, nil)
	s.receiver("ci", peer.URL, object{"paused": true})
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	eventually(t, func() bool { return len(consumers(t, js, "relay_to_receiver")) == 1 }, "the receiver has no consumer")
	require.NoError(t, n.Stop(context.Background()))
	require.NoError(t, js.DeleteConsumer(t.Context(), "relay_to_receiver", "to_receiver_ci"))

	s = startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	eventually(t, func() bool {
		return s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["backlog"] == 1.0
	}, "it waits, whoever works on it")
	s.receiver("ci", peer.URL, object{"paused": false})
	s.awaitStatus("a", "1", "DONE")
}

// If the order of a receiver changes while a message waits, that message and later ones are sent in the new order.
func TestOrderChangesWhileMessagesWait(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	peer := newPeer(t, nil)
	s.receiver("ci", peer.URL, object{"paused": true, "order": "none"})
	s.batch("a", "ci", 20)
	eventually(t, func() bool {
		return s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["backlog"] == 20.0
	}, "twenty messages do not wait")
	s.receiver("ci", peer.URL, object{"paused": false, "order": "receiver"})
	eventually(t, func() bool { return peer.count() == 20 }, "not all are sent")
	s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", "last", "ci"))
}
