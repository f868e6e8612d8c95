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

// The jobs of a message that can never be read end with the reason. They do not block callbacks, workers, lists, replays or
// pruning.
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
	broadcast(t, n, "good", "x", nil)

	waitState(t, n, "good", "push", "DELIVERED")
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
	code, body, _ := call(t, n, "GET", "/channel/ch/consumer/asks/queued-jobs?limit=1", tokens, "")
	require.Equal(t, 200, code, body)
	require.Contains(t, body, `"MessageID":"good"`)
	code, body, _ = call(t, n, "POST", "/channel/ch/consumer/claims/claim?limit=1&wait=5s", tokens, "")
	require.Equal(t, 200, code, body)
	require.Contains(t, body, `"MessageID":"good"`)

	for _, id := range []string{"push", "asks", "claims"} {
		c, err := n.store.Directory.Consumers.Find(t.Context(), "ch", id)
		require.NoError(t, err)
		job := domain.JobID{Seq: ack.Sequence, Consumer: c.Number}
		require.Eventually(t, func() bool {
			j, err := n.store.Jobs.Job(t.Context(), job)
			return err == nil && j.Status == domain.Dead
		}, 10*time.Second, 5*time.Millisecond, id)
		code, body, _ = call(t, n, "GET", "/channel/ch/consumer/"+id+"/job/"+job.String()+"/attempts", nil, "")
		require.Equal(t, 200, code, body)
		require.Contains(t, body, fmt.Sprintf(`"Error":"broker.m.ch.bad: message %d: envelope: invalid character`, ack.Sequence))
		code, body, _ = call(t, n, "GET", "/channel/ch/consumer/"+id+"/dlq", nil, "")
		require.Equal(t, 200, code, body)
		require.Contains(t, body, job.String())
		code, body, _ = call(t, n, "POST", "/channel/ch/consumer/"+id+"/replay", map[string]string{"Content-Type": "application/json"}, `{"DryRun":true,"Metadata":{"A":"b"}}`)
		require.Equal(t, 200, code, body)
	}
	code, body, _ = call(t, n, "GET", "/channel/ch/messages", nil, "")
	require.Equal(t, 200, code, body)
	code, body, _ = call(t, n, "DELETE", "/channel/ch/consumer/asks/dlq", tokens, "")
	require.Equal(t, 200, code, body)
	require.Contains(t, body, `"deletedCount":1`)

	pruned, err := n.broker.Pruner.PruneFinished(t.Context(), time.Now().Add(2*time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, pruned, "the good one is not worked off")
	require.Contains(t, string(readOnlyFile(t, cfg.Prune.ExportPath)), `"Payload":"d2hhdCBjYW1l"`)
}
