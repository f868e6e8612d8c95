package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jetpull/jetpull/test/servertest"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
)

const outageWorkers = 4

// outageConfig has claims and callbacks last longer than a slow machine stalls
// before or after the outage: what ends by time is repeated too.
func outageConfig(t *testing.T, url string, replicas int) *Config {
	cfg := externalConfig(t, url, replicas)
	cfg.Connection.Timeout = 10 * time.Second
	return cfg
}

// outage runs a broker under load on a NATS server while something happens to
// the server, and then checks that all that was answered with 201 was worked
// off by a push and a pull consumer.
func outage(t *testing.T, n *Node, happen func()) {
	t.Helper()
	var pushed, pulled tally
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { pushed.add(r.Header.Get("X-Broker-Message-ID")) }))
	defer receiver.Close()
	putConsumer(t, n, "push", receiver.URL, nil)
	putConsumer(t, n, "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	c := client.New(n.URL(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var accepted []string
	var producing atomic.Bool
	producing.Store(true)
	var producers, background sync.WaitGroup
	for p := range 4 {
		producers.Go(func() {
			for i := 0; producing.Load(); i++ {
				id := fmt.Sprintf("%d-%d", p, i)
				_, err := c.Broadcast(ctx, client.Producer{Channel: "ch", ChannelToken: "ct", ID: "pr", Token: "pt"}, client.Message{ID: id, Payload: []byte("x")})
				if err != nil && !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("broadcast %s: %v", id, err)
				}
				if err == nil {
					mu.Lock()
					accepted = append(accepted, id)
					mu.Unlock()
				}
			}
		})
	}
	background.Go(func() {
		err := c.Consumer("ch", "ct", "pull", "kt").Consume(ctx, func(_ context.Context, j *client.Job) error {
			pulled.add(j.MessageID)
			return nil
		}, client.Options{Concurrency: outageWorkers})
		if err != nil {
			t.Error(err)
		}
	})
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(accepted) }
	require.Eventually(t, func() bool { return count() > 50 }, waitLongest, time.Millisecond)
	happen()
	before := count()
	require.Eventually(t, func() bool { return count() > before+50 }, waitLongest, 5*time.Millisecond, "broadcasts do not go on")
	producing.Store(false)
	producers.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		missedPush, _ := pushed.missing(accepted)
		missedPull, _ := pulled.missing(accepted)
		return missedPush == 0 && missedPull == 0
	}, waitLongest, 20*time.Millisecond)
	cancel()
	background.Wait()
	_, repeatedPush := pushed.missing(accepted)
	_, repeatedPull := pulled.missing(accepted)
	t.Logf("%d accepted; %d callbacks and %d pulled jobs repeated", count(), repeatedPush, repeatedPull)
	require.LessOrEqual(t, repeatedPush, n.cfg.Dispatch.Concurrency, "only what was in flight is repeated")
	require.LessOrEqual(t, repeatedPull, outageWorkers, "only what was in flight is repeated")
}

// Without its server a broker lives and is not ready, and says so to who asks
// and to producers; it is ready again by itself.
func TestReadinessFollowsTheServer(t *testing.T) {
	srv := servertest.RunServer(t)
	n := startNode(t, externalConfig(t, srv.URL(), 1))
	status := func(path string) int { code, _, _ := call(t, n, "GET", path, nil, ""); return code }
	require.Equal(t, 200, status("/readyz"))
	srv.Stop()
	waitUntil(t, func() bool { return status("/readyz") == 503 }, "still ready without a server")
	require.Equal(t, 200, status("/healthz"))
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt"}
	scheduled := maps.Clone(tokens)
	scheduled["X-Broker-Scheduled-For"] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, headers := range []map[string]string{tokens, scheduled, tokens} {
		begin := time.Now()
		code, body, answer := call(t, n, "POST", "/channel/ch/broadcast", headers, "x")
		require.Equal(t, 503, code, body)
		require.Equal(t, "1", answer.Get("Retry-After"))
		require.Less(t, time.Since(begin), 3*time.Second, "the connection is known to be down")
	}
	srv.Start()
	waitUntil(t, func() bool { return status("/readyz") == 200 }, "not ready with its server back")
	broadcast(t, n, "m", "x", nil)
}

func TestServerIsRestarted(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	n := startNode(t, outageConfig(t, srv.URL(), 1))
	outage(t, n, srv.Restart)
}

func TestServerOfAClusterIsRestarted(t *testing.T) {
	t.Parallel()
	cluster := servertest.RunCluster(t)
	n := startNode(t, outageConfig(t, clusterURLs(cluster), 3))
	outage(t, n, func() {
		leader := cluster.StreamLeader("broker_messages")
		require.GreaterOrEqual(t, leader, 0)
		cluster.StopServer(leader)
		cluster.StartServer(t, leader)
	})
}

// A process whose own server was started again makes callbacks as before: nobody else could have made them meanwhile.
func TestCallbacksAfterARestartOfTheServer(t *testing.T) {
	receiver := newReplayReceiver(t)
	n := startNode(t, testConfig(t))
	putConsumer(t, n, "k", receiver.URL, nil)
	broadcast(t, n, "before", "x", nil)
	waitState(t, n, "before", "k", "DELIVERED")
	require.NoError(t, n.embedded.Restart(t.Context()))
	require.Eventually(t, func() bool { return n.store.Ready() == nil }, waitLong, waitStep)
	broadcast(t, n, "after", "x", nil)
	waitState(t, n, "after", "k", "DELIVERED")
}
