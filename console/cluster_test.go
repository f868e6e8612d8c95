package console

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// A stream whose only server is away is in trouble, and it and its consumers stay in the lists. A stream that lost one of three servers says so. All
// recover.
func TestAServerOfAClusterIsAway(t *testing.T) {
	c := servertest.RunCluster(t)
	js := c.Servers[0].JetStream(t, c.Connect(t, nats.MaxReconnects(-1)))
	for _, stream := range []jetstream.StreamConfig{
		{Name: "ALONE", Subjects: []string{"alone"}}, {Name: "COPIED", Subjects: []string{"copied"}, Replicas: 3},
	} {
		_, err := js.CreateStream(t.Context(), stream)
		require.NoError(t, err)
	}
	_, err := js.CreateConsumer(t.Context(), "ALONE", jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	h := Handler(Config{NATS: JetStream(js), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(h.Close)
	shows := func(path string, ok func(text string) bool) {
		t.Helper()
		text := ""
		require.Eventually(t, func() bool { text = read(h, path); return ok(text) }, time.Minute, 50*time.Millisecond, path)
		if path == "/streams" {
			require.Contains(t, text, "ALONE")
			require.Contains(t, text, "COPIED")
		}
	}
	shows("/streams", func(text string) bool {
		return !strings.Contains(text, "no leader") && !strings.Contains(text, "replica offline")
	})
	away := c.StreamLeader("ALONE")
	c.StopServer(away)
	shows("/streams", func(text string) bool {
		return strings.Contains(text, "no leader") && strings.Contains(text, "replica offline")
	})
	shows("/overview", func(text string) bool { return strings.Contains(text, "of 2 streams is in trouble") })
	shows("/consumers", func(text string) bool { return strings.Contains(text, "worker") && strings.Contains(text, "no leader") })
	c.StartServer(t, away)
	shows("/consumers", func(text string) bool {
		return strings.Contains(text, "worker") && !strings.Contains(text, "no leader")
	})
	shows("/streams", func(text string) bool {
		return !strings.Contains(text, "no leader") && !strings.Contains(text, "replica offline")
	})
	shows("/overview", func(text string) bool { return !strings.Contains(text, "in trouble") })
}
