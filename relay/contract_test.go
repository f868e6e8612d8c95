package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
	"github.com/jetpull/jetpull/test/servertest"
)

// everyKind is a receiver of each kind.
var everyKind = map[string]traits{
	"plain":    {Traits: relayhistory.Traits{Unknown: "at_least_once", MaxRetries: 3}},
	"once":     {Traits: relayhistory.Traits{Unknown: "at_most_once", MaxRetries: 3}},
	"asked":    {Traits: relayhistory.Traits{Asked: true, MaxRetries: 3}},
	"pending":  {Traits: relayhistory.Traits{Asked: true, MaxRetries: 3}, pending: true},
	"failing":  {Traits: relayhistory.Traits{Asked: true, MaxRetries: 2}, failEvery: 3},
	"limited":  {Traits: relayhistory.Traits{Asked: true, Limit: 10, Window: 500 * time.Millisecond, MaxRetries: 3}},
	"ordered":  {Traits: relayhistory.Traits{Asked: true, Order: "source", MaxRetries: 50}, failEvery: 4},
	"one":      {Traits: relayhistory.Traits{Asked: true, Order: "receiver", MaxRetries: 50}, failEvery: 5, latency: 2 * time.Millisecond},
	"ordering": {Traits: relayhistory.Traits{Unknown: "at_least_once", Order: "source", MaxRetries: 50}, failEvery: 4},
}

// send submits n messages of each of three sources for each receiver of a history: one by one over HTTP, in batches, and over
// NATS if there is a connection.
func (h *witness) send(t *testing.T, sites []*site, nc *nats.Conn, n int) {
	var senders sync.WaitGroup
	for name := range h.receivers {
		senders.Go(func() {
			for i := range n {
				s, id := sites[i%len(sites)], fmt.Sprintf("%04d", i)
				h.offer(name+"-http", id, name)
				code, body := s.call("POST", "/v1/messages", "git-token", message(name+"-http", id, name))
				if code != 202 {
					t.Errorf("%s %s: %d %s", name, id, code, body)
					return
				}
				h.accept(name+"-http", id)
			}
		})
		senders.Go(func() { h.sendBatch(t, sites[0], name, n) })
		if nc == nil {
			continue
		}
		senders.Go(func() {
			for i := range n {
				source, id := name+"-nats", fmt.Sprintf("%04d", i)
				m := nats.NewMsg("relay.from_sender." + source)
				m.Data = []byte(`{"n":1}`)
				m.Header = nats.Header{"Relay-Message-Id": {id}, "Relay-Receiver": {name}}
				h.offer(source, id, name)
				if _, err := nc.RequestMsg(m, waitLong); err != nil {
					t.Errorf("%s %s: %v", source, id, err)
					return
				}
				h.accept(source, id)
			}
		})
	}
	senders.Wait()
}

func (h *witness) sendBatch(t *testing.T, s *site, name string, n int) {
	var lines strings.Builder
	for i := range n {
		id := fmt.Sprintf("%04d", i)
		h.offer(name+"-batch", id, name)
		data, err := json.Marshal(message(name+"-batch", id, name))
		if err != nil {
			t.Error(err)
			return
		}
		lines.Write(append(data, '\n'))
	}
	code, body := s.call("POST", "/v1/messages:batch", "git-token", lines.String())
	if code != 200 || strings.Count(string(body), "ARRIVED") != n {
		t.Errorf("%d %s", code, body)
		return
	}
	for i := range n {
		h.accept(name+"-batch", fmt.Sprintf("%04d", i))
	}
}

// The contract on the embedded server. No process is killed, so nothing is sent twice.
func TestContractEmbedded(t *testing.T) {
	t.Parallel()
	h := newWitness(t, everyKind)
	h.timeout = patient
	s := startSite(t)
	h.configure(s)
	h.send(t, []*site{s}, nil, contractMessages())
	h.check(s, 0)
}

// patient is the timeout of receivers in runs without kills, so that no answer is late.
const patient = 60

// stalled bounds the messages in progress in a process that stalls.
const stalled = 64

func contractMessages() int {
	if testing.Short() {
		return 15
	}
	return 200
}

// The contract on a cluster of three servers with three copies of all streams, and two processes. One of them is stopped while
// messages are submitted.
func TestContractOnACluster(t *testing.T) {
	t.Parallel()
	cluster := servertest.RunCluster(t)
	nc := cluster.Connect(t)
	kinds := everyKind
	if testing.Short() {
		// Each receiver has consumers with three copies of their state, and CI has two cores.
		kinds = map[string]traits{}
		for _, name := range []string{"plain", "pending", "limited", "ordered"} {
			kinds[name] = everyKind[name]
		}
	}
	h := newWitness(t, kinds)
	h.timeout = patient
	var nodes [2]*Node
	var sites []*site
	for i := range nodes {
		cfg := testConfig(t.TempDir())
		cfg.NATS.URL, cfg.NATS.Replicas = cluster.Servers[i].URL(), 3
		// No process dies here, so a slow cluster must not cause a take-over.
		cfg.Relay.Takeover = 10 * time.Second
		n, err := Start(t.Context(), cfg, testLog())
		require.NoError(t, err)
		nodes[i], sites = n, append(sites, &site{t: t, url: n.URL()})
	}
	t.Cleanup(func() { require.NoError(t, nodes[0].Stop(context.Background())) })
	h.configure(sites[0])
	h.send(t, sites, nc, contractMessages())
	stopped := make(chan error, 1)
	go func() { stopped <- nodes[1].Stop(context.Background()) }()
	h.mu.Lock()
	var known []string
	for key := range h.offered {
		known = append(known, key)
	}
	h.mu.Unlock()
	for _, key := range known {
		source, id, _ := strings.Cut(key, "/")
		if strings.HasSuffix(source, "-http") {
			// A duplicate while the other process stops is recognized, and is not sent again.
			sites[0].want(200, "POST", "/v1/messages", "git-token", message(source, id, strings.TrimSuffix(source, "-http")))
		}
	}
	require.NoError(t, <-stopped)
	// A stall of the cluster that is longer than the take-over time has the effect of a killed process.
	h.check(sites[0], stalled)
}
