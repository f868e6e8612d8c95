package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/test/servertest"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// TestWatchSaysThatTheServerIsGone stops the server of a watch, which would wait for an
// answer for as long as this test may take, and starts it again.
func TestWatchSaysThatTheServerIsGone(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		srv := servertest.RunServer(t)
		js := natstest.JetStream(t, srv.Connect(t))
		natstest.Stream(t, js, "S", "s.>")
		natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
		args := []string{"info", "S", "c", "--watch", "--interval", "100ms", "--timeout", "5m"}
		look, lost, again := "pending 0", "the connection to the server is lost; connecting again", "connected again"
		if asJSON {
			args = append(args, "--json")
			look, lost, again = `"pending":0`, `{"event":"problem","error":"the connection to the server is lost; connecting again"}`, `{"event":"connected"}`
		}
		out, _, stop := fixture{url: srv.URL()}.start(t, args...)
		shows := func(what string) {
			t.Helper()
			require.Eventually(t, func() bool { return strings.Contains(out.String(), what) }, 30*time.Second, 5*time.Millisecond, "no %s in %s", what, out)
		}
		shows(look)
		srv.Stop()
		shows(lost)
		srv.Restart()
		shows(again)
		require.Equal(t, 1, strings.Count(out.String(), lost), "once for one outage")
		require.Equal(t, cli.ExitDone, stop())
	}
}
