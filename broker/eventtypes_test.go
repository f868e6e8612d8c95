package broker

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A push consumer gets callbacks for its event types only. The callback names the type. Both hold after a restart.
func TestPushOfEventTypes(t *testing.T) {
	var mu sync.Mutex
	var got []string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Header.Get("X-Broker-Message-ID")+" "+r.Header.Get("X-Broker-Event-Type"))
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, url.Values{"eventTypes": {"order.*"}})
	putConsumer(t, n, "pull", receiver.URL, url.Values{"eventTypes": {"user.*"}, "type": {"pull"}})
	broadcast(t, n, "no", "x", map[string]string{"X-Broker-Event-Type": "user.made"})
	broadcast(t, n, "yes", "x", map[string]string{"X-Broker-Event-Type": "order.made"})
	waitState(t, n, "yes", "k", "DELIVERED")
	stopNode(t, n)

	again := startNode(t, cfg)
	broadcast(t, again, "none", "x", nil)
	broadcast(t, again, "last", "x", map[string]string{"X-Broker-Event-Type": "order.sent"})
	waitState(t, again, "last", "k", "DELIVERED")
	require.Equal(t, map[string]string{"pull": "QUEUED"}, jobStates(t, again, "no"))
	require.Equal(t, map[string]string{"k": "DELIVERED"}, jobStates(t, again, "yes"))
	require.Empty(t, jobStates(t, again, "none"))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"yes order.made", "last order.sent"}, got)
}
