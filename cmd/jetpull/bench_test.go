package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/test/servertest"
)

func (f fixture) streams(t *testing.T) int {
	t.Helper()
	account, err := f.js.AccountInfo(t.Context())
	require.NoError(t, err)
	return account.Streams
}

func TestBench(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "bench", "--messages", "200", "--rounds", "1", "--memory", "--case", "^(next-1|fetch-10|consume-ack)$")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	for _, name := range []string{"next-1", "fetch-10", "consume-ack"} {
		require.Regexp(t, `(?m)^`+name+` +200 +[\d,]+ +[\d,]+ +\d+\.\d\d$`, r.out)
	}
	require.Contains(t, r.err, "turns: 12 in ")
	require.Equal(t, 1, f.streams(t), "its streams are removed")
}

func TestBenchInterrupted(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	_, errOut, stop := f.start(t, "bench", "--messages", "100", "--rounds", "1000", "--memory")
	require.Eventually(t, func() bool { return f.streams(t) == 2 }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitInterrupted, stop(), errOut.String())
	require.Equal(t, 1, f.streams(t), "its streams are removed")
}

func TestBenchBringsItsOwnServer(t *testing.T) {
	r := jetpullRun(t, "bench", "--messages", "50", "--rounds", "1", "--json")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Empty(t, r.err)
	all := jsonLines[struct {
		Case    string
		Jetpull float64 `json:"jetpull_per_second"`
		NATS    float64 `json:"natsgo_per_second"`
		Ratio   float64
	}](t, r.out)
	require.Len(t, all, 3)
	for _, c := range all {
		require.Positive(t, c.Jetpull, c.Case)
		require.InDelta(t, c.Jetpull/c.NATS, c.Ratio, 1e-6, "the ratio of one round is that of its rates")
	}
}

// TestBenchLogsIn has a server at which each of the connections needs the user.
func TestBenchLogsIn(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithConfig(`authorization { user: ann, password: pw }`))
	r := jetpullRun(t, "bench", "-s", srv.URL(), "--user", "ann", "--password", "pw", "--messages", "10", "--rounds", "1")
	require.Equal(t, cli.ExitDone, r.code, r.err)
}
