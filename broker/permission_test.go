package broker

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// A broker has all permissions of its account. If one is missing, the log names each subject that the server has refused, whether the start
// fails for it or the broker lacks it later. Then /readyz is 503 and names it too.
func TestAMissingPermissionIsReported(t *testing.T) {
	for _, deny := range []string{
		"$JS.API.STREAM.CREATE.broker_jobs", "$JS.API.STREAM.INFO.broker_messages", "$JS.API.CONSUMER.CREATE.broker_jobs.>", "$KV.broker_registry.>",
		"broker.m.>", "broker.j.>", "broker.a.>", "broker.t", "$JS.API.CONSUMER.CREATE.broker_ticks.>", "$JS.API.CONSUMER.MSG.NEXT.broker_ticks.>",
		"$JS.API.CONSUMER.MSG.NEXT.broker_messages.>",
	} {
		t.Run(deny, func(t *testing.T) {
			t.Parallel()
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
			defer receiver.Close()
			d := servertest.StartDenied(t, deny, func(ctx context.Context, url string, log *slog.Logger) (*Node, error) {
				return Start(ctx, externalConfig(t, url, 1), log)
			})
			n := d.Node
			if n == nil {
				return
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			defer func() { _ = n.Stop(ended) }() // it may fail to record what is in progress
			put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, n.URL()+"/channel/ch/consumer/k",
				strings.NewReader("token=kt&callbackUrl="+receiver.URL))
			require.NoError(t, err)
			put.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			answer, err := http.DefaultClient.Do(put)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt"}
			code, body, _ := call(t, n, "POST", "/channel/ch/broadcast", tokens, "x")
			require.Contains(t, []int{201, 503}, code, body)
			require.Equal(t, deny == "broker.m.>", code == 503, body)
			waitUntil(t, d.Named, "the log does not name it")
			code, body, _ = call(t, n, "GET", "/readyz", nil, "")
			require.Equal(t, 503, code, body)
			require.Contains(t, body, "lacks a permission: Publish to "+strings.TrimSuffix(deny, ">"))
		})
	}
}
