package broker

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// Two nodes start together on a fresh cluster, many times. In one half of the runs they start before the cluster has a leader, in
// the other half afterwards. Both nodes are ready soon after the cluster is. The time is logged and not checked, because it
// depends on the machine.
func TestStartsOnFreshClusters(t *testing.T) {
	starts := 20
	if testing.Short() {
		starts = 2 // one of each half
	}
	var longest time.Duration
	for i := range starts {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			cluster, isReady := freshCluster(t)
			early := i%2 == 0
			if !early {
				waitUntil(t, isReady, "the cluster does not get ready")
			}
			discard := slog.New(slog.DiscardHandler)
			starting := []<-chan *Node{
				startLater(t, externalConfig(t, clusterURLs(cluster), 3), discard),
				startLater(t, externalConfig(t, clusterURLs(cluster), 3), discard),
			}
			waitUntil(t, isReady, "the cluster does not get ready")
			begin := time.Now()
			for _, started := range starting {
				n := <-started
				require.NotNil(t, n)
				t.Cleanup(func() { stopNode(t, n) })
				waitUntil(t, func() bool { return ready(t, n) }, "not ready")
			}
			took := time.Since(begin)
			longest = max(longest, took)
			t.Logf("ready %v after the cluster, nodes started before it was: %v", took.Round(time.Millisecond), early)
		})
	}
	t.Logf("%d starts; at most %v from the cluster to both nodes", starts, longest.Round(time.Millisecond))
}

// freshCluster starts three servers without waiting until they form a cluster.
func freshCluster(t *testing.T) (c *servertest.Cluster, ready func() bool) {
	t.Helper()
	routes, err := servertest.FreeAddresses(3)
	require.NoError(t, err)
	c = &servertest.Cluster{}
	for i := range routes {
		c.Servers = append(c.Servers, servertest.RunServer(t, servertest.Clustered(i, routes)))
	}
	return c, func() bool {
		led := false
		for _, s := range c.Servers {
			srv := s.Unwrap()
			if !srv.JetStreamIsCurrent() {
				return false
			}
			led = led || srv.JetStreamIsLeader() && len(srv.JetStreamClusterPeers()) == len(routes)
		}
		return led
	}
}
