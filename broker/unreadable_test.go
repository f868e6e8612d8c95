package broker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// A message that can never be read is ignored. It does not block callbacks, workers, lists or pruning.
func TestUnreadableMessage(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Prune.ExportPath, cfg.Prune.Retention = t.TempDir(), time.Hour
	n := startNode(t, cfg)
	putConsumer(t, n, "push", receiver.URL, url.Values{"concurrency": {"1"}})
	for _, id := range []string{"asks", "claims"} {
		putConsumer(t, n, id, receiver.URL, url.Values{"type": {"pull"}})
	}
	js, err := n.jetStream()
	require.NoError(t, err)
	ack, err := js.PublishMsg(t.Context(), &nats.Msg{
		Subject: "broker.m.ch.bad", Data: []byte("what came"),
		Header: nats.Header{"Jetpull-Message": {fmt.Sprintf("9 %d {not JSON", time.Now().UnixNano())}},
	})
	require.NoError(t, err)
	foreign := fmt.Sprintf(`9 %d {"id":"forged","ch":"bank","by":"p","ct":"text/plain"}`, time.Now().UnixNano())
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "broker.m.ch.forged", Header: nats.Header{"Jetpull-Message": {foreign}}})
	require.NoError(t, err)
	broadcast(t, n, "good", "x", nil)

	waitState(t, n, "good", "push", "DELIVERED")
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
	code, body, _ := call(t, n, "GET", "/channel/ch/consumer/asks/queued-jobs?limit=1", tokens, "")
	require.Equal(t, 200, code, body)
	require.Contains(t, body, `"MessageID":"good"`)
	code, body, _ = call(t, n, "POST", "/channel/ch/consumer/claims/claim?limit=1&wait=5s", tokens, "")
	require.Equal(t, 200, code, body)
	require.Contains(t, body, `"MessageID":"good"`)

	_, known := n.store.Index.Lookup(domain.JobID{Seq: ack.Sequence, Consumer: mustConsumer(t, n, "push").Number})
	require.False(t, known)
	code, body, _ = call(t, n, "GET", "/channel/ch/messages", nil, "")
	require.Equal(t, 200, code, body)
	pruned, err := n.broker.Pruner.PruneFinished(t.Context(), time.Now().Add(2*time.Hour))
	require.NoError(t, err)
	require.Zero(t, pruned, "the good one is not worked off")
}
