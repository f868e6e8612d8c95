package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/test/servertest"
)

// replicated is a model whose replicas take a moment to agree, as real ones
// do.
var replicated = model.Config{Replicas: 3, Quorum: model.Delay{Min: 100 * time.Microsecond, Max: 2 * time.Millisecond}}

// TestModelAgreesWithACluster compares with three replicas. There a status may
// overtake messages, so their order among each other is not compared.
func TestModelAgreesWithACluster(t *testing.T) {
	runAll(t, func(t *testing.T) *nats.Conn { return servertest.RunCluster(t).Connect(t) },
		untimed(), replicated, snapshot.unordered)
}

// scriptsWithRestart need a server of their own. AckWait is long: it is counted
// from when a message was stored once a server has restarted. With replay policy
// original the server pauses, without heartbeats, before the messages that were
// stored when it began.
func scriptsWithRestart() []script {
	return []script{{name: "restart", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }), steps: list(
		sub("a"), pub(4), pull("a", "3"), ack("a", 0, "+ACK"), ack("a", 1, "-NAK"), pull("a", "1"), ack("a", 2, "-NAK"),
		pull("a", `{"batch":5,"max_bytes":5000,"expires":60000000000}`), pull("a", `{"batch":2,"expires":60000000000}`),
		restart(), confirm("a", 2, "+ACK"), confirm("a", 3, "+ACK"), pub(1), pull("a", "5"),
	)}, {name: "replay", cfg: explicit(func(c *jetstream.ConsumerConfig) { c.ReplayPolicy = jetstream.ReplayOriginalPolicy }), steps: list(
		sub("a"), pub(1), sleep(1000), pub(1), sleep(2500), pub(1), restart(),
		pull("a", `{"batch":5,"expires":60000000000,"idle_heartbeat":800000000}`), sleep(500), sleep(1000), sleep(1500), sleep(1000), sleep(1200), pub(1),
	)}, {name: "replay and acks", cfg: explicit(func(c *jetstream.ConsumerConfig) {
		c.ReplayPolicy, c.AckWait = jetstream.ReplayOriginalPolicy, time.Second
	}), steps: list(
		sub("a"), pub(1), sleep(1500), pub(1), restart(),
		pull("a", `{"batch":9,"expires":60000000000}`), ack("a", 0, "+ACK"), sleep(1000), sleep(1000), sleep(2500),
	)}}
}

func TestModelAgreesWithTheServerOverARestart(t *testing.T) {
	for _, sc := range scriptsWithRestart() {
		t.Run(sc.name, func(t *testing.T) {
			want := runOnModel(t, streamName(0), &sc, model.Config{})
			srv := servertest.RunServer(t)
			nc := srv.Connect(t)
			s := serverSide(t, nc, streamName(0), sc, 1)
			s.restart = func() {
				before := nc.Stats().Reconnects
				srv.Restart()
				require.NoError(t, tryFor(func() error { // it may not know yet that it was cut off
					if n := nc.Stats().Reconnects; n == before {
						return fmt.Errorf("%d reconnects", n)
					}
					return nil
				}))
				waitConnected(t, nc)
			}
			// Which of several pulls gets its status first is left to chance.
			compare(t, s, sc, want, snapshot.unordered)
		})
	}
}

// TestModelAgreesWithAClusterOverALeaderChange moves the leader while pulls
// wait and messages are not acked.
func TestModelAgreesWithAClusterOverALeaderChange(t *testing.T) {
	sc := script{name: "step down", cfg: explicit(), steps: list(
		sub("a"), sub("b"), pub(4), pull("a", "3"), confirm("a", 0, "+ACK"),
		pull("a", `{"batch":5,"expires":60000000000,"no_wait":true}`), ack("a", 1, "-NAK"), pull("a", "1"),
		pull("a", `{"batch":5,"expires":60000000000}`), pull("b", `{"batch":5,"expires":60000000000,"max_bytes":10000}`),
		restart(), confirm("a", 3, "+ACK"), pub(1), pull("a", `{"batch":3,"expires":60000000000}`), pub(2),
	)}
	cfg := replicated
	cfg.Outage = model.Delay{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond}
	want := runOnModel(t, streamName(0), &sc, cfg)
	require.True(t, slices.ContainsFunc(want[len(want)-1].frames["b"], func(frame string) bool {
		return strings.Contains(frame, "Leadership Change")
	}))

	c := servertest.RunCluster(t)
	nc := c.Connect(t)
	s := serverSide(t, nc, streamName(0), sc, 3)
	c.WaitReady(t, streamName(0), "C")
	s.restart = func() {
		c.StepDownConsumer(t, streamName(0), "C")
		waitForPulls(t, nc, streamName(0))
	}
	compare(t, s, sc, want, snapshot.unordered)
}

// TestDefaultsAreTheServers holds the model's defaults against the server's.
func TestDefaultsAreTheServers(t *testing.T) {
	nc := oneServer(t)
	js := natstest.JetStream(t, nc)
	natstest.Stream(t, js, "S")
	for _, cfg := range []jetstream.ConsumerConfig{
		explicit(),
		explicit(func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy }),
		explicit(func(c *jetstream.ConsumerConfig) {
			c.BackOff = []time.Duration{time.Second, time.Minute}
			c.MaxDeliver = 3
		}),
		explicit(func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPinned, []string{"g"}
		}),
	} {
		cfg.Durable, cfg.Name = "", "C"
		theirs := natstest.Consumer(t, js, "S", cfg).CachedInfo().Config
		want := cfg
		model.SetDefaults(&want)
		require.Equal(t, theirs.AckWait, want.AckWait)
		require.Equal(t, theirs.MaxDeliver, want.MaxDeliver)
		require.Equal(t, theirs.MaxWaiting, want.MaxWaiting)
		require.Equal(t, theirs.MaxAckPending, want.MaxAckPending)
		require.Equal(t, theirs.PinnedTTL, want.PinnedTTL)
		require.NoError(t, js.DeleteConsumer(t.Context(), "S", "C"))
	}
}
