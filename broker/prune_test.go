package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/test/servertest"
)

// A message with a dead job is retained until the job is purged, or for a retention of its own.
func TestDeadJobsAreRetained(t *testing.T) {
	cfg := testConfig(t)
	cfg.Prune.Retention = time.Hour
	n := startNode(t, cfg)
	putConsumer(t, n, "k", "http://127.0.0.1/", url.Values{"type": {"pull"}})
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
	pruner := n.broker.Pruner
	die := func(message string) {
		broadcast(t, n, message, "x", nil)
		for _, c := range claim(t, n, "k", "?limit=1&wait=10s") {
			code, body, _ := call(t, n, "POST", "/channel/ch/consumer/k/job/"+c.ID, tokens, `{"NextState":"DEAD","ClaimToken":"`+c.ClaimToken+`"}`)
			require.Equal(t, 202, code, body)
		}
	}
	die("stays")
	broadcast(t, n, "done", "x", nil)
	deliver(t, n, "k", claim(t, n, "k", "?limit=1&wait=10s")[0])
	pruned, err := pruner.PruneFinished(t.Context(), time.Now().Add(1000*24*time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, pruned, "the delivered one")
	waitState(t, n, "stays", "k", "DEAD")

	pruner.Rules.DeadRetention = 24 * time.Hour
	pruned, err = pruner.PruneFinished(t.Context(), time.Now().Add(23*time.Hour))
	require.NoError(t, err)
	require.Zero(t, pruned)
	pruned, err = pruner.PruneFinished(t.Context(), time.Now().Add(25*time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, pruned)

	pruner.Rules.DeadRetention = 0
	die("purged")
	jobs := n.store.Index.JobsOf("ch", 3)
	require.Len(t, jobs, 1)
	_, err = n.store.Jobs.PutJob(t.Context(), domain.Settle(jobs[0], domain.Removed, time.Now()))
	require.NoError(t, err)
	pruned, err = pruner.PruneFinished(t.Context(), time.Now().Add(2*time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, pruned)
}

// The messages of a channel whose ID is too long for a subject are pruned, too.
func TestChannelWithALongIDIsPruned(t *testing.T) {
	cfg := testConfig(t)
	cfg.Prune.Retention = time.Hour
	n := startNode(t, cfg)
	channel := "/channel/" + strings.Repeat("x", domain.MaxText)
	code, body, _ := call(t, n, "PUT", channel, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, "token=ct")
	require.Equal(t, 200, code, body)
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt"}
	code, body, _ = call(t, n, "POST", channel+"/broadcast", tokens, "x")
	require.Equal(t, 201, code, body)
	pruned, err := n.broker.Pruner.PruneFinished(t.Context(), time.Now().Add(2*time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, pruned)
}

// Of two nodes that prune at the same time, one exports a message. Each counts what it has deleted.
func TestNodesExportAMessageOnce(t *testing.T) {
	srv := servertest.RunServer(t)
	folder := t.TempDir()
	var nodes []*Node
	for i := range 2 {
		cfg := testConfig(t)
		cfg.NATS.URL = srv.URL()
		cfg.Prune.ExportPath, cfg.Prune.NodeName, cfg.Prune.Retention = folder, fmt.Sprint("node", i), time.Hour
		nodes = append(nodes, startNode(t, cfg))
	}
	const messages = 500
	var sending sync.WaitGroup
	for p := range 10 {
		sending.Go(func() {
			for i := p; i < messages; i += 10 {
				broadcast(t, nodes[i%2], fmt.Sprint(i), "x", nil)
			}
		})
	}
	sending.Wait()
	pruned := 0
	waitUntil(t, func() bool {
		var both [2]int
		var pruning sync.WaitGroup
		for i, n := range nodes {
			pruning.Go(func() { both[i], _ = n.broker.Pruner.PruneFinished(t.Context(), time.Now().Add(2*time.Hour)) })
		}
		pruning.Wait()
		pruned += both[0] + both[1]
		return pruned >= messages
	}, "not all messages are pruned")
	require.Equal(t, messages, pruned)

	exported := map[string]int{}
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for line := range bytes.Lines(text) {
			var e struct{ ID string }
			require.NoError(t, json.Unmarshal(line, &e))
			exported[e.ID]++
		}
	}
	require.Len(t, exported, messages)
	for id, times := range exported {
		require.Equal(t, 1, times, id)
	}
}
