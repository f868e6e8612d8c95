package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/test/servertest"
)

const outageWorkers = 4

// outageConfig makes claims and callbacks outlast the stalls of a slow machine around the outage, because expired ones are
// repeated.
func outageConfig(t *testing.T, url string, replicas int) *Config {
	cfg := externalConfig(t, url, replicas)
	cfg.Connection.Timeout = 10 * time.Second
	return cfg
}

// outage runs a broker under load on a NATS server while happen disturbs the server. It then checks that each message answered
// with 201 was worked off by a push and a pull consumer.
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
				_, err := c.Broadcast(ctx, client.Producer{Channel: "ch", ChannelToken: "ct", ID: "pr", Token: "pt"},
					client.Message{ID: id, Payload: []byte("x")})
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

// Without its server a broker stays alive and is not ready. It says so in /readyz and to producers, and becomes ready again on
// its own.
func TestReadinessFollowsTheServer(t *testing.T) {
	srv := servertest.RunServer(t)
	var log servertest.Log
	n, err := Start(t.Context(), externalConfig(t, srv.URL(), 1), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	t.Cleanup(func() { stopNode(t, n) })
	status := func(path string) int { code, _, _ := call(t, n, "GET", path, nil, ""); return code }
	require.Equal(t, 200, status("/readyz"))
	srv.Stop()
	waitUntil(t, func() bool { return status("/readyz") == 503 }, "still ready without a server")
	require.Equal(t, 200, status("/healthz"))
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt"}
	scheduled := maps.Clone(tokens)
	scheduled["X-Broker-Scheduled-For"] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for i, headers := range []map[string]string{tokens, scheduled, tokens} {
		code, body, answer := call(t, n, "POST", "/channel/ch/broadcast", headers, "x")
		require.Equal(t, 503, code, body)
		require.Equal(t, "1", answer.Get("Retry-After"))
		require.Equal(t, i+1, strings.Count(log.String(), "nothing was sent"), "the connection is known to be down: %s", &log)
	}
	srv.Start()
	waitUntil(t, func() bool { return status("/readyz") == 200 }, "not ready with its server back")
	broadcast(t, n, "m", "x", nil)
}

// During an outage a node cannot look up an object that it does not have in memory. The answer is 503, which clients retry, and
// not 404.
func TestNotKnownInAnOutageIsNotNotFound(t *testing.T) {
	srv := servertest.RunServer(t)
	cfg := externalConfig(t, srv.URL(), 1)
	cfg.Admin.Token = "secret"
	n := startNode(t, cfg)
	admin := map[string]string{
		"X-Broker-Admin-Token": "secret", "X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt", "X-Broker-Producer-Token": "pt",
		"X-Broker-Producer-ID": "pr",
	}
	with := func(name, value string) map[string]string {
		header := maps.Clone(admin)
		header[name] = value
		return header
	}
	form := with("Content-Type", "application/x-www-form-urlencoded")
	code, body, _ := call(t, n, "PUT", "/channel/ch/consumer/k", form, "token=kt&callbackUrl=http://127.0.0.1:9/&type=pull")
	require.Equal(t, 200, code, body)
	k := mustConsumer(t, n, "k")
	job := domain.JobID{Seq: 1 << 20, Consumer: k.Number}.String()
	replay := fmt.Sprintf("%d-7", k.Number)
	type request struct {
		method, path string
		header       map[string]string
		body         string
		known        int // with the server available
	}
	requests := []request{
		{"POST", "/channel/new/broadcast", admin, "x", 404},
		{"POST", "/channel/ch/broadcast", with("X-Broker-Producer-ID", "new"), "x", 401},
		{"GET", "/channel/new", admin, "", 404},
		{"GET", "/producer/new", admin, "", 404},
		{"GET", "/channel/ch/consumer/new", admin, "", 404},
		{"DELETE", "/channel/ch/consumer/new", admin, "", 404},
		{"PUT", "/channel/new/consumer/k", form, "token=t", 404},
		{"POST", "/channel/ch/consumer/new/pause", admin, "", 404},
		{"POST", "/channel/ch/consumer/new/claim", admin, "", 401},
		{"GET", "/channel/ch/consumer/new/queued-jobs", admin, "", 401},
		{"GET", "/channel/ch/consumer/new/dlq", admin, "", 404},
		{"POST", "/channel/ch/consumer/new/dlq", form, "requeue=kt", 404},
		{"GET", "/channel/new/messages", admin, "", 404},
		{"GET", "/channel/ch/message/new", admin, "", 404},
		{"GET", "/channel/ch/scheduled-message/new", admin, "", 404},
		{"DELETE", "/channel/ch/scheduled-message/new", admin, "", 404},
		{"GET", "/channel/ch/consumer/k/job/" + job, admin, "", 404},
		{"POST", "/channel/ch/consumer/k/job/" + job, admin, `{"NextState":"DELIVERED"}`, 404},
		{"POST", "/channel/ch/consumer/k/job/" + job + "/requeue-dead-job", admin, "", 404},
		{"DELETE", "/channel/ch/consumer/k/job/" + job, admin, "", 404},
		{"GET", "/channel/ch/consumer/k/job/" + job + "/attempts", admin, "", 404},
		{"GET", "/channel/ch/consumer/k/replay/" + replay, admin, "", 404},
		{"DELETE", "/channel/ch/access/new", admin, "", 404},
		{"GET", "/channel/ch", map[string]string{"Authorization": "Bearer made-by-another-node"}, "", 401},
		{"POST", "/channel/ch/broadcast", map[string]string{"Authorization": "Bearer made-by-another-node"}, "x", 403},
	}
	for _, r := range requests {
		code, body, _ := call(t, n, r.method, r.path, r.header, r.body)
		require.Equal(t, r.known, code, "%s %s with its server: %s", r.method, r.path, body)
	}
	srv.Stop()
	waitUntil(t, func() bool { code, _, _ := call(t, n, "GET", "/readyz", nil, ""); return code == 503 }, "still ready without a server")
	for _, r := range requests {
		code, body, header := call(t, n, r.method, r.path, r.header, r.body)
		require.Equal(t, 503, code, "%s %s without its server: %s", r.method, r.path, body)
		require.Equal(t, "1", header.Get("Retry-After"))
		require.Equal(t, "the store is not available, try again", body)
	}
	code, body, _ = call(t, n, "GET", "/channel/ch/consumer/k", admin, "")
	require.Equal(t, 200, code, "it is in memory: %s", body)
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

// A process makes callbacks as before after a restart of its embedded server: no other process could have made them meanwhile.
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
