package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/broker/internal/journal"
	"github.com/jetpull/jetpull/test/servertest"
)

func externalConfig(t testing.TB, url string, replicas int) *Config {
	cfg := testConfig(t)
	cfg.NATS.URL, cfg.NATS.Replicas, cfg.NATS.StoreDir = url, replicas, ""
	return cfg
}

// patient makes claims outlast a write that waits for a new leader, and the work on all jobs that a worker has claimed at once on
// a slow machine.
func patient(cfg *Config) *Config {
	cfg.Connection.Timeout = 30 * time.Second
	return cfg
}

func clusterURLs(c *servertest.Cluster) string {
	urls := make([]string, len(c.Servers))
	for i, srv := range c.Servers {
		urls[i] = srv.URL()
	}
	return strings.Join(urls, ",")
}

type claimed struct {
	ID, ClaimToken string
	Message        struct{ MessageID string }
}

func claim(t testing.TB, n *Node, consumer, query string) []claimed {
	t.Helper()
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/"+consumer+"/claim"+query,
		map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}, "")
	require.Equal(t, 200, code, body)
	var result struct{ Result []claimed }
	require.NoError(t, json.Unmarshal([]byte(body), &result))
	return result.Result
}

func deliver(t testing.TB, n *Node, consumer string, c claimed) {
	t.Helper()
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/"+consumer+"/job/"+c.ID,
		map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"},
		`{"NextState":"DELIVERED","ClaimToken":"`+c.ClaimToken+`"}`)
	require.Equal(t, 202, code, body)
}

// shareWork runs one consumer on two nodes: 32 workers, half on each node, claim the messages that producers broadcast to both
// nodes. No job is held by two workers, and none is lost.
func shareWork(t *testing.T, a, b *Node, n int) {
	t.Helper()
	putConsumer(t, a, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	mustConsumer(t, b, "k") // node b knows the consumer at once
	nodes := []*Node{a, b}
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			for i := p; i < n; i += 4 {
				broadcast(t, nodes[i%2], fmt.Sprint(i), "x", nil)
			}
		})
	}
	var mu sync.Mutex
	held := map[string]int{}
	var count atomic.Int64
	for w := range 32 {
		wg.Go(func() {
			node := nodes[w%2]
			for count.Load() < int64(n) {
				for _, c := range claim(t, node, "k", "?limit=7&wait=200ms") {
					mu.Lock()
					held[c.Message.MessageID]++
					mu.Unlock()
					deliver(t, nodes[(w+1)%2], "k", c) // any node can serve any request
					count.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, held, n)
	for id, times := range held {
		assert.Equal(t, 1, times, "message %s", id)
	}
	for _, node := range nodes {
		require.Eventually(t, func() bool {
			counts := node.store.Index.CountJobs(mustConsumer(t, node, "k").Number)
			return counts[2].Count == n && counts[0].Count == 0 && counts[1].Count == 0
		}, waitLongest, waitStep)
	}
}

func TestTwoNodesShareClaims(t *testing.T) {
	srv := servertest.RunServer(t)
	a := startNode(t, patient(externalConfig(t, srv.URL(), 1)))
	b := startNode(t, patient(externalConfig(t, srv.URL(), 1)))
	shareWork(t, a, b, fewer(400))
}

// Two workers on two nodes race for the head of one queue, and each does half of the jobs. A worker that loses the race for all
// jobs it tried looks again at once: it never gets an empty answer while jobs are queued, and never waits for a new job.
func TestWorkerThatLosesEveryRaceLooksAgain(t *testing.T) {
	const jobs = 200
	srv := servertest.RunServer(t)
	a := startNode(t, patient(externalConfig(t, srv.URL(), 1)))
	b := startNode(t, patient(externalConfig(t, srv.URL(), 1)))
	putConsumer(t, a, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	var broadcasts sync.WaitGroup
	for p := range 20 {
		broadcasts.Go(func() { broadcastMany(t, a, fmt.Sprint(p, "-"), jobs/20) })
	}
	broadcasts.Wait()
	for _, n := range []*Node{a, b} {
		waitUntil(t, func() bool { return n.store.Index.CountJobs(mustConsumer(t, n, "k").Number)[0].Count == jobs }, "not all jobs are queued")
	}
	var workers sync.WaitGroup
	for _, n := range []*Node{a, b} {
		workers.Go(func() {
			for done := 0; done < jobs/2; {
				got := claim(t, n, "k", "?limit=1&wait=20s")
				if !assert.NotEmpty(t, got, "idle after %d jobs, with at least %d queued", done, jobs/2-done) {
					return
				}
				done += len(got)
			}
		})
	}
	workers.Wait()
}

// tallied is a receiver that counts callbacks, and holds those of one message open until release is called.
func tallied(t *testing.T, held string) (url string, calls *tally, release func()) {
	t.Helper()
	calls, block := &tally{}, make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Broker-Message-ID")
		calls.add(id)
		if id == held {
			<-block
		}
	}))
	release = sync.OnceFunc(func() { close(block) })
	t.Cleanup(func() { release(); receiver.Close() })
	return receiver.URL, calls, release
}

// dispatchers returns the node that dispatches and the other one.
func dispatchers(t *testing.T, a, b *Node) (here, there *Node) {
	t.Helper()
	require.Eventually(t, func() bool {
		for here, there = range map[*Node]*Node{a: b, b: a} {
			if dispatching(t, here) {
				return true
			}
		}
		return false
	}, waitLong, waitStep)
	return here, there
}

// broadcastMany returns the IDs of n messages.
func broadcastMany(t *testing.T, n *Node, prefix string, count int) (ids []string) {
	t.Helper()
	for i := range count {
		id := prefix + fmt.Sprint(i)
		broadcast(t, n, id, "x", nil)
		ids = append(ids, id)
	}
	return ids
}

// One node dispatches to a push consumer. When it stops, the other takes over at once, although a callback of the first is still
// in progress. Nothing is lost or repeated.
func TestPushIsTakenOver(t *testing.T) {
	url, calls, release := tallied(t, "held")
	srv := servertest.RunServer(t)
	a, b := startNode(t, patient(externalConfig(t, srv.URL(), 1))), startNode(t, patient(externalConfig(t, srv.URL(), 1)))
	putConsumer(t, a, "k", url, nil)
	mustConsumer(t, b, "k")
	leaving, staying := dispatchers(t, a, b)
	broadcast(t, leaving, "held", "x", nil)
	all := append(broadcastMany(t, staying, "before", fewer(100)), "held")
	require.Eventually(t, func() bool { missing, _ := calls.missing([]string{"held"}); return missing == 0 }, waitLong, waitStep)
	stopped := make(chan struct{})
	go func() { defer close(stopped); stopNode(t, leaving) }()
	after := broadcastMany(t, staying, "after", fewer(100))
	waitUntil(t, func() bool { missing, _ := calls.missing(after); return missing == 0 },
		"the other node does not take over while a callback of the first is in progress")
	release()
	<-stopped
	all = append(all, after...)
	for _, id := range all {
		waitState(t, staying, id, "k", "DELIVERED")
	}
	_, repeated := calls.missing(all)
	require.Zero(t, repeated)
}

// The server withdraws the pin while a callback is in progress, as when the leader of the consumer changes, until another node
// has it. Nothing is repeated.
func TestPinThatIsTakenAway(t *testing.T) {
	url, calls, release := tallied(t, "held")
	srv := servertest.RunServer(t)
	a, b := startNode(t, patient(externalConfig(t, srv.URL(), 1))), startNode(t, patient(externalConfig(t, srv.URL(), 1)))
	putConsumer(t, a, "k", url, nil)
	mustConsumer(t, b, "k")
	here, there := dispatchers(t, a, b)
	broadcast(t, here, "held", "x", nil)
	require.Eventually(t, func() bool { missing, _ := calls.missing([]string{"held"}); return missing == 0 }, waitLong, waitStep)
	js, shard := srv.JetStream(t, srv.Connect(t)), fmt.Sprintf("shard_%d", a.store.Shards.Shard("ch"))
	all := []string{"held"}
	deadline := time.Now().Add(waitLong) // a node notices half a second later, and the server may have given the pin to it again
	for try := 0; !dispatching(t, there); try++ {
		require.True(t, time.Now().Before(deadline), "the server gives the pin to the same node again and again")
		require.NoError(t, jetpull.Unpin(t.Context(), js, "broker_ticks", shard, "dispatch"))
		all = append(all, broadcastMany(t, a, fmt.Sprint(try, "-"), 5)...)
		dispatchers(t, a, b)
	}
	all = append(all, broadcastMany(t, b, "after", 20)...)
	waitUntil(t, func() bool { missing, _ := calls.missing(all); return missing == 0 }, "not all is called")
	release()
	for _, id := range all {
		waitState(t, a, id, "k", "DELIVERED")
	}
	_, repeated := calls.missing(all)
	require.Zero(t, repeated)
}

func dispatching(t testing.TB, n *Node) bool {
	t.Helper()
	_, body, _ := call(t, n, "GET", "/metrics", nil, "")
	return containsLine(body, `broker_dispatching{shard="`+strconv.Itoa((&journal.Store{}).Shards.Shard("ch"))+`"} 1`)
}

// The cluster has three servers and three replicas. The leaders of the streams and of a shard move while everything runs.
func TestClusterWithMovingLeaders(t *testing.T) {
	t.Parallel()
	cluster := servertest.RunCluster(t)
	config := func() *Config { return patient(externalConfig(t, clusterURLs(cluster), 3)) }
	a, b := startNode(t, config()), startNode(t, config())
	nc := cluster.Connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	moved := make(chan int)
	go func() {
		count := 0
		defer func() { moved <- count }()
		for {
			for _, leader := range []string{
				"STREAM.LEADER.STEPDOWN.broker_messages", "STREAM.LEADER.STEPDOWN.broker_jobs", "STREAM.LEADER.STEPDOWN.broker_ticks",
				fmt.Sprintf("CONSUMER.LEADER.STEPDOWN.broker_ticks.shard_%d", a.store.Shards.Shard("ch")),
			} {
				if _, err := nc.Request("$JS.API."+leader, nil, 2*time.Second); err == nil {
					count++
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(700 * time.Millisecond):
				}
			}
		}
	}()
	var count atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { count.Add(1) }))
	defer receiver.Close()
	putConsumer(t, a, "push", receiver.URL, nil)
	n := int64(fewer(200))
	shareWork(t, a, b, int(n))
	require.Eventually(t, func() bool { return count.Load() >= n }, waitLongest, 20*time.Millisecond)
	cancel()
	require.Positive(t, <-moved)
}

// startLater starts a node on a cluster that may not be ready yet.
func startLater(t *testing.T, cfg *Config, log *slog.Logger) <-chan *Node {
	t.Helper()
	started := make(chan *Node, 1)
	go func() {
		n, err := Start(t.Context(), cfg, log)
		assert.NoError(t, err)
		started <- n
	}()
	return started
}

func ready(t *testing.T, n *Node) bool {
	t.Helper()
	code, _, _ := call(t, n, "GET", "/readyz", nil, "")
	return code == 200
}

// Two nodes that start on a fresh cluster create the streams together. A third that starts while the cluster has no leader waits
// for one. When the quorum is lost, each node logs it once, and goes on when the quorum is back. Claims that end meanwhile share
// one line in the log.
func TestStartsAndQuorumOfACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.RunCluster(t)
	var log servertest.Log
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var nodes []*Node
	starting := []<-chan *Node{
		startLater(t, externalConfig(t, cluster.Servers[2].URL(), 3), logger), // this node goes on; it only loses the quorum
		startLater(t, externalConfig(t, clusterURLs(cluster), 3), slog.New(slog.DiscardHandler)),
	}
	for _, started := range starting {
		n := <-started
		require.NotNil(t, n)
		t.Cleanup(func() { stopNode(t, n) })
		require.True(t, ready(t, n))
		nodes = append(nodes, n)
	}
	putConsumer(t, nodes[0], "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	for range 20 {
		broadcast(t, nodes[0], "", "x", nil)
	}
	worker := client.New(nodes[0].URL(), nil).Consumer("ch", "ct", "pull", "kt")
	for _, timeout := range []time.Duration{6 * time.Second, 50 * time.Second} { // some claims end without a quorum, also on a slow machine
		claimed := 0
		waitUntil(t, func() bool {
			jobs, err := worker.Claim(t.Context(), 10-claimed, timeout, 0)
			claimed += len(jobs)
			return err == nil && claimed == 10
		}, "jobs cannot be claimed")
	}

	cluster.StopServer(0)
	cluster.StopServer(1)
	lost := time.Now()
	for _, n := range nodes {
		waitUntil(t, func() bool { return !ready(t, n) }, "still ready without a quorum")
	}
	t.Logf("not ready %v after the quorum was lost", time.Since(lost).Round(time.Millisecond))
	cfg := externalConfig(t, cluster.Servers[2].URL(), 3)
	third := startLater(t, cfg, slog.New(slog.DiscardHandler))
	var refused sync.WaitGroup // in parallel: each waits ten seconds for a quorum
	for range 3 {
		refused.Go(func() {
			code, _, _ := call(t, nodes[0], "POST", "/channel/ch/broadcast",
				map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt"}, "x")
			assert.Equal(t, 503, code)
		})
	}
	refused.Wait()
	require.Equal(t, 1, strings.Count(log.String(), "no quorum"), log.String())
	require.NotContains(t, log.String(), "job=", "a line for a single job")
	require.NotContains(t, log.String(), "request failed")
	cluster.StartServer(t, 0)
	cluster.StartServer(t, 1)
	n := <-third
	require.NotNil(t, n)
	t.Cleanup(func() { stopNode(t, n) })
	nodes = append(nodes, n)
	for _, n := range nodes {
		waitUntil(t, func() bool { return ready(t, n) }, "not ready with its quorum back")
		broadcast(t, n, "", "y", nil)
	}
}
