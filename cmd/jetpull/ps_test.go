package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/running"
	"github.com/jetpull/jetpull/test/servertest"
)

// named runs a worker with a name, whose handler goes on until it is cancelled. The error of a handler is sent to ended.
func (f fixture) named(t *testing.T, name string) (ended chan error) {
	t.Helper()
	js, err := jetstream.New(f.srv.Connect(t))
	require.NoError(t, err)
	sub, err := jetpull.Subscribe(t.Context(), js, "S", "c")
	require.NoError(t, err)
	ended = make(chan error, 10)
	begun := make(chan struct{}, 10)
	go func() {
		_ = sub.Consume(t.Context(), func(ctx context.Context, _ *jetpull.Msg) error {
			begun <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		}, jetpull.Named(name), jetpull.Prefetch(1), jetpull.RetryDelays(time.Hour))
	}()
	<-begun
	return ended
}

// The messages of all workers are listed, and the handler of one is cancelled, in the worker that has it.
func TestPsAndCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "1", "2")
	one := f.named(t, "one")
	two := f.named(t, "two")

	r := f.run(t, "ps", "S", "c", "--json", "--wait", "300ms")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	sequences := map[string]uint64{}
	for _, w := range jsonLines[running.List](t, r.out) {
		require.Len(t, w.Running, 1, r.out)
		require.Equal(t, os.Getpid(), w.PID)
		require.NotEmpty(t, w.Instance)
		require.EqualValues(t, 1, w.Running[0].Attempt)
		require.Equal(t, "s.a", w.Running[0].Subject)
		sequences[w.Name] = w.Running[0].Sequence
	}
	require.Equal(t, map[string]uint64{"one": 1, "two": 2}, sequences)
	r = f.run(t, "ps", "S", "c", "--wait", "300ms")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	lines := strings.Split(r.out, "\n")
	require.Equal(t, []string{"worker", "host", "pid", "sequence", "subject", "since", "attempt"}, strings.Fields(strings.ToLower(lines[0])))
	require.Regexp(t, `^one .* 1 +s\.a .* 1$`, lines[2])
	require.Regexp(t, `^two .* 2 +s\.a .* 1$`, lines[3])
	require.Contains(t, r.err, "2 workers answered within 300ms")

	r = f.run(t, "cancel", "S", "c", "2", "--wait", "300ms")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Contains(t, r.out, `{"name":"two",`)
	require.ErrorIs(t, <-two, jetpull.ErrCancelled)
	require.Empty(t, one)
	r = f.run(t, "cancel", "S", "c", "2", "--wait", "300ms")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "no handler has message 2: 2 workers of consumer c on stream S answered within 300ms. It may be handled already")
	r = f.run(t, "ps", "S", "c", "--wait", "300ms")
	require.NotContains(t, r.out, " 2 ")
	r = f.run(t, "cancel", "S", "c", "1", "--json", "--wait", "300ms")
	require.Contains(t, r.out, `{"name":"one","instance":"`)
	require.ErrorIs(t, <-one, jetpull.ErrCancelled)
}

// A consumer of which no worker answers has perhaps none. One that does not exist is another error.
func TestPsWithoutAnAnswer(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	for _, line := range []string{"ps S c", "cancel S c 7"} {
		r := f.run(t, strings.Fields(line+" --wait 100ms")...)
		require.Equal(t, cli.ExitTimeout, r.code)
		require.Contains(t, r.err, "no worker of consumer c on stream S answered within 100ms: it may have none, or none with a name")
	}
	for line, want := range map[string]string{
		"ps S nobody": "consumer not found; see what there is with: jetpull consumers ls S",
		"ps X c":      "stream not found",
	} {
		r := f.run(t, strings.Fields(line)...)
		require.Equal(t, cli.ExitError, r.code)
		require.Contains(t, r.err, want)
	}
	for line, want := range map[string]string{
		"cancel S c x":         `"x" is not the sequence of a message`,
		"cancel S c 0":         `"0" is not the sequence of a message`,
		"cancel S c":           "usage: jetpull cancel STREAM CONSUMER SEQUENCE",
		"ps S c --wait 0s":     "--wait 0s is not in 10ms..",
		"consume S c --named":  "flag needs an argument",
		"consume S c --named=": `--named: "" is not a name of a service`,
	} {
		r := f.run(t, strings.Fields(line)...)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, want)
	}
}

// A user who may not ask gets the refusal, and not that there is no worker.
func TestPsIsRefused(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t, servertest.WithConfig(`authorization {
		users: [{user: u, password: p, permissions: {publish: {deny: "jetpull.>"}}}]
	}`))
	r := jetpullRun(t, "ps", "S", "c", "--nats", srv.URL(), "--user", "u", "--password", "p", "--wait", "2s")
	require.Equal(t, cli.ExitError, r.code, r.err)
	require.Contains(t, r.err, "the user may not do this; allow it in the server's permissions")
	require.Contains(t, r.err, "jetpull.ps.S.c")
}

// A command, and a program of --worker, are ended by cancel. Other messages of the program are handled, and no death is counted.
func TestCancelEndsCommands(t *testing.T) {
	for name, tt := range map[string]struct{ args []string }{
		"command": {[]string{"--max-attempts", "1", "--concurrency", "4", "--", "sh", "-c", "read -r word; test $word = ack || sleep 600"}},
		"worker":  {[]string{"--max-attempts", "1", "--max-crashes", "1", "--worker", "--", os.Args[0]}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(asWorker, t.TempDir())
			f := newFixture(t, jetstream.ConsumerConfig{})
			f.publish(t, "hang", "ack", "ack")
			out, errOut, stop := f.start(t, append([]string{"consume", "S", "c", "--json", "--named", "n"}, tt.args...)...)
			require.Eventually(t, func() bool {
				return strings.Contains(f.run(t, "cancel", "S", "c", "1", "--wait", "100ms").out, `"name":"n"`)
			}, 30*time.Second, 10*time.Millisecond, errOut)
			f.settled(t, 3)
			require.Equal(t, cli.ExitDone, stop(), errOut)
			require.Contains(t, out.String(), `{"stream_seq":1,"subject":"s.a","delivered":1,"outcome":"terminated"`)
			require.Equal(t, 2, strings.Count(out.String(), `"acknowledged"`), out)
			require.NotContains(t, out.String(), "its process ended")
		})
	}
}

// Others of the account can answer as workers do. Garbage is left out, and nothing that a terminal obeys reaches the output.
func TestForgedAnswersOfWorkers(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	nc := f.srv.Connect(t)
	answers := []string{
		"", "{", "[]", `{"running":7}`, `{"pid":"x"}`,
		`{"name":"\u001b[2Jforged","host":"\u001b]0;x\u0007","pid":-1,"running":[{"sequence":7,"subject":"\u001b[31m\nx","since":"2026-01-01T00:00:00Z"}],"cancelled":true}`,
	}
	_, err := nc.Subscribe("jetpull.*.S.c", func(m *nats.Msg) {
		for _, a := range answers {
			_ = m.Respond([]byte(a))
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	for _, line := range []string{"ps S c", "ps S c --json", "cancel S c 7", "cancel S c 7 --json"} {
		r := f.run(t, strings.Fields(line+" --wait 200ms")...)
		require.Equal(t, cli.ExitDone, r.code, r.err)
		require.Contains(t, r.out, "forged")
		require.NotContains(t, r.out+r.err, "\x1b")
		require.NotContains(t, r.out, "\a")
	}
	require.Contains(t, f.run(t, "ps", "S", "c", "--wait", "200ms").err, "1 worker answered")
}
