package broker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// startLimited starts a broker whose user has permissions, of which that for a subject is missing, if any.
func startLimited(t *testing.T, permissions, missing string) *servertest.Denied[Node] {
	return servertest.StartLimited(t, permissions, missing, func(ctx context.Context, url string, log *slog.Logger) (*Node, error) {
		cfg := externalConfig(t, url, 1)
		cfg.Dispatch.MaxRetry = 0
		return Start(ctx, cfg, log)
	})
}

// A broker needs no permission that is not in docs/permissions.md.
func TestThePermissionsOfThePageSuffice(t *testing.T) {
	var healthy atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer receiver.Close()
	d := startLimited(t, servertest.PermissionsOf(t, "..", "Broker"), "")
	n := d.Node
	require.NotNil(t, n, d.Log)
	defer stopNode(t, n)
	putConsumer(t, n, "push", receiver.URL, nil)
	putConsumer(t, n, "pull", receiver.URL, url.Values{"type": {"pull"}})
	broadcast(t, n, "m", "x", nil)
	waitState(t, n, "m", "push", "DEAD")
	healthy.Store(true)
	asForm := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/push/dlq", asForm, "requeue=kt")
	require.Equal(t, 202, code, body)
	waitState(t, n, "m", "push", "DELIVERED")
	require.Len(t, claim(t, n, "pull", "?limit=1&wait=5s"), 1)
	_, _, found := call(t, n, "GET", "/channel/ch", nil, "")
	code, body, _ = call(t, n, "DELETE", "/channel/ch?force=true", map[string]string{"If-Unmodified-Since": found.Get("Last-Modified")}, "")
	require.Equal(t, 204, code, body)
	code, body, _ = call(t, n, "GET", "/readyz", nil, "")
	require.Equal(t, 200, code, body)
	require.NotContains(t, d.Log.String(), "Permissions Violation")
}

// If a permission of a broker's account is missing, the log names each subject that the server has refused, whether the start fails for it or the
// broker lacks it later. Then /readyz is 503 and names it too.
func TestAMissingPermissionIsReported(t *testing.T) {
	all := maps.Collect(servertest.WithoutEach(servertest.PermissionsOf(t, "..", "Broker")))
	for _, deny := range []string{
		"$JS.API.STREAM.CREATE.broker_jobs", "$JS.API.STREAM.INFO.broker_messages", "$JS.API.CONSUMER.CREATE.broker_jobs.>", "$KV.broker_registry.>",
		"broker.m.>", "broker.j.>", "broker.a.>", "broker.t", "$JS.API.CONSUMER.CREATE.broker_ticks.>", "$JS.API.CONSUMER.MSG.NEXT.broker_ticks.>",
		"$JS.API.CONSUMER.MSG.NEXT.broker_messages.>",
	} {
		all[deny] = fmt.Sprintf(`publish: {allow: ">", deny: %q}`, deny)
	}
	for missing, permissions := range all {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
			defer receiver.Close()
			d := startLimited(t, permissions, missing)
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
			require.Equal(t, missing == "broker.m.>" || missing == "broker.>", code == 503, body)
			waitUntil(t, d.Named, "the log does not name it")
			code, body, _ = call(t, n, "GET", "/readyz", nil, "")
			require.Equal(t, 503, code, body)
			require.Regexp(t, "lacks a permission: .*(Publish|Subscription) to "+regexp.QuoteMeta(servertest.Literal(missing)), body)
		})
	}
}
