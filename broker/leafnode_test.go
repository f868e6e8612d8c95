package broker

import (
	"net/url"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// A broker at a leaf node that has a domain of its own stores everything in the domain of the hub, deletions included.
func TestDomainBehindALeafNode(t *testing.T) {
	addresses, err := servertest.FreeAddresses(1)
	require.NoError(t, err)
	hub := servertest.RunServer(t, servertest.WithDomain("hub"), servertest.WithOptions(func(o *server.Options) {
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", addresses[0].Port
	}))
	leaf := servertest.RunServer(t, servertest.WithDomain("leaf"), servertest.WithOptions(func(o *server.Options) {
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats-leaf", Host: addresses[0].String()}}}}
	}))
	require.Eventually(t, func() bool { return leaf.Unwrap().NumLeafNodes() == 1 }, waitLong, waitStep)

	cfg := externalConfig(t, leaf.URL(), 1)
	cfg.NATS.Domain = "hub"
	n := startNode(t, cfg)
	putConsumer(t, n, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	broadcast(t, n, "m", "x", nil)
	for _, job := range claim(t, n, "k", "") {
		deliver(t, n, "k", job)
	}
	require.Empty(t, claim(t, n, "k", ""))
	code, body, header := call(t, n, "GET", "/channel/ch/consumer/k", nil, "")
	require.Equal(t, 200, code, body)
	code, body, _ = call(t, n, "DELETE", "/channel/ch/consumer/k", map[string]string{"If-Unmodified-Since": header.Get("Last-Modified")}, "")
	require.Equal(t, 204, code, body)
	code, body, _ = call(t, n, "GET", "/channel/ch/consumer/k", nil, "")
	require.Equal(t, 404, code, body)

	streams := func(s *servertest.Server) (names []string) {
		for name := range s.JetStream(t, s.Connect(t)).StreamNames(t.Context()).Name() {
			names = append(names, name)
		}
		return names
	}
	require.NotEmpty(t, streams(hub))
	require.Empty(t, streams(leaf))
}
