package relay

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// A process has taken the first message of a source, and stalls. Another takes over and settles the second, which goes to a
// receiver without order. The third goes to the ordered receiver of the first, and waits for the first.
func TestOrderBehindAMessageWithoutOrder(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	cfg := testConfig(t.TempDir())
	cfg.NATS.URL = srv.URL()
	start := func() (*Node, *site) {
		n, err := Start(t.Context(), cfg, testLog())
		require.NoError(t, err)
		return n, &site{t, n.URL()}
	}
	n, s := start()
	ordered, other := newPeer(t, nil), newPeer(t, nil)
	s.receiver("ordered", ordered.URL, object{"order": "source"})
	s.receiver("other", other.URL, nil)
	require.NoError(t, n.Stop(context.Background()))

	nc := srv.Connect(t)
	for i, receiver := range []string{"ordered", "other", "ordered"} {
		m := nats.NewMsg("relay.from_sender.a")
		m.Data, m.Header = []byte(`1`), nats.Header{"Relay-Message-Id": {fmt.Sprint(i)}, "Relay-Receiver": {receiver}}
		_, err := nc.RequestMsg(m, waitLong)
		require.NoError(t, err)
	}
	first, consumer := takeFirst(t, nc)
	n, _ = start()
	t.Cleanup(func() { require.NoError(t, n.Stop(context.Background())) })
	eventually(t, func() bool {
		require.NoError(t, first.InProgress()) // it is still in progress
		info, err := consumer.Info(t.Context())
		return err == nil && other.count() == 1 && (info.NumRedelivered > 0 || ordered.count() > 0)
	}, "the messages behind it are not worked on")
	require.NoError(t, first.Nak())
	eventually(t, func() bool { return ordered.count() == 2 }, "not both are sent")
	for i, id := range []string{"a/0", "a/2"} {
		require.Equal(t, id, ordered.list()[i].Header.Get("Webhook-Id"))
	}
}

// takeFirst takes the first message of from_sender out of its partition, as the process with the pin does.
func takeFirst(t *testing.T, nc *nats.Conn) (*nats.Msg, jetstream.Consumer) {
	js := testJetStream(t, nc)
	stream, err := js.Stream(t.Context(), "relay_from_sender")
	require.NoError(t, err)
	stored, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	var partition int
	_, err = fmt.Sscanf(stored.Subject, "relay.from_sender.%d.a", &partition)
	require.NoError(t, err)
	name := fmt.Sprintf("from_sender_%d", partition)
	consumer, err := stream.Consumer(t.Context(), name)
	require.NoError(t, err)
	request := fmt.Sprintf(`{"batch":1,"group":"relay","expires":%d}`, waitLong)
	m, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.relay_from_sender."+name, []byte(request), waitLong)
	require.NoError(t, err)
	require.Equal(t, "0", m.Header.Get("Relay-Message-Id"))
	return m, consumer
}

// A source whose first message waits for its retry does not block others, as long as the messages behind it are within the lane's
// limit.
func TestSourceThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, func(_ int, got seen) (int, string) {
		if strings.HasPrefix(got.Header.Get("Webhook-Id"), "bad/") {
			return http.StatusTooEarly, ""
		}
		return http.StatusOK, "1"
	})
	s.receiver("ci", r.URL, object{"order": "source", "retry_after": 3600})
	s.batch("bad", "ci", 1000)
	require.EqualValues(t, 1, s.want(200, "POST", "/v1/messages?wait=10s", adminToken, message("good", "1", "ci"))["response"])
	require.Equal(t, 2, r.count())
}

// A redriven message has a place in the order again, behind those that were waiting. Later messages wait for it.
func TestRedrivenMessageHoldsItsSource(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, func(n int, _ seen) (int, string) {
		return []int{http.StatusBadRequest, http.StatusTooEarly, http.StatusOK, http.StatusOK}[n-1], "1"
	})
	s.receiver("ci", r.URL, object{"order": "source"})
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	s.awaitStatus("a", "1", "FAILED")
	s.receiver("ci", r.URL, object{"order": "source", "paused": true})
	s.operate("redrive", object{"filter": object{}})
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "2", "ci"))
	s.receiver("ci", r.URL, object{"order": "source"})
	s.awaitStatus("a", "2", "DONE")
	var ids []string
	for _, got := range r.list() {
		ids = append(ids, got.Header.Get("Webhook-Id"))
	}
	require.Equal(t, []string{"a/1", "a/1", "a/1", "a/2"}, ids)
}
