package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// TestWatchSaysThatTheServerIsGone stops the server of a watch, and starts it again.
func TestWatchSaysThatTheServerIsGone(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	js := natstest.JetStream(t, srv.Connect(t))
	natstest.Stream(t, js, "S", "s.>")
	natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	out, errOut, stop := fixture{url: srv.URL()}.start(t, "info", "S", "c", "--watch", "--interval", "100ms", "--timeout", "300ms", "--json")
	shows := func(in *buffer, what string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(in.String(), what) }, 30*time.Second, 5*time.Millisecond, "no %s in %s", what, in)
	}
	shows(out, `"pending":0`)
	srv.Stop()
	shows(errOut, `"problem":"consumer \"c\" on stream \"S\": `)
	srv.Restart()
	shows(errOut, "connected again")
	looks := len(out.String())
	require.Eventually(t, func() bool { return len(out.String()) > looks }, 30*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitDone, stop())
	jsonLines[map[string]any](t, errOut.String())
}

// TestWatchCountsAcknowledgements has one message that is not acknowledged, so that the ack floor does not move.
func TestWatchCountsAcknowledgements(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	f.publish(t, slices.Repeat([]string{"x"}, 100)...)
	out, _, stop := f.start(t, "info", "S", "c", "--watch", "--interval", "100ms", "--json")
	looks := func() []watched {
		return jsonLines[watched](t, out.String()[:strings.LastIndexByte(out.String(), '\n')+1])
	}
	require.Eventually(t, func() bool { return len(looks()) > 0 }, 30*time.Second, 5*time.Millisecond)
	sub, err := jetpull.Subscribe(t.Context(), f.js, "S", "c")
	require.NoError(t, err)
	ms, err := sub.Fetch(t.Context(), 100, jetpull.FillBatch())
	require.NoError(t, err)
	require.NoError(t, jetpull.ConfirmAcks(t.Context(), ms[1:]...))
	require.Eventually(t, func() bool { all := looks(); l := all[len(all)-1]; return l.Pending == 0 && l.AckPending == 1 }, 30*time.Second,
		5*time.Millisecond)
	require.Equal(t, cli.ExitDone, stop())
	acked, before := 0.0, time.Time{}
	for _, l := range looks() {
		if l.Rates != nil {
			acked += l.Rates.Acked * l.Time.Sub(before).Seconds()
		}
		before = l.Time
	}
	require.InDelta(t, 99, acked, 0.01)
	require.NoError(t, sub.Close(t.Context()))
}

// watched is what info --watch prints.
type watched struct {
	Time       time.Time
	Pending    int
	AckPending int `json:"ack_pending"`
	Rates      *struct{ Acked float64 }
}
