package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// TestNothingIsMadeForAWrongCommandLine sees that what is wrong in itself is said,
// in the words of the command line, before a server is started.
func TestNothingIsMadeForAWrongCommandLine(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"consume S c --concurrency 0", "--concurrency 0 is not in 1..1792"},
		{"consume S c --concurrency 1793", "--concurrency 1793 is not in 1..1792"},
		{"consume S c --prefetch 0", "--prefetch 0 is not in 1..1792"},
		{"consume S c --prefetch 1793", "--prefetch 1793 is not in 1..1792"},
		{"consume S c --prefetch 3 --concurrency 4", "--prefetch 3 is less than --concurrency 4"},
		{"consume S c --max-attempts 0", "--max-attempts 0 is not in 1.."},
		{"consume S c --retry-delays 1s,-2s", "--retry-delays -2s is not in 0s.."},
		{"consume S c --drain-timeout -1s", "--drain-timeout -1s is not in 0s.."},
		{"consume S c --dead-letter dead", "--dead-letter needs --max-attempts"},
		{"consume S c --max-attempts 3 --dead-letter dead.*", `--dead-letter "dead.*" is not a subject to publish to`},
		{"consume S c --idle 9000h", "--idle 9000h0m0s is not in 0s.."},
		{"consume S c --count -1", "--count -1 is not in 0.."},
		{"fetch S c --count 0", "--count 0 is not in 1.."},
		{"fetch S c --wait 0", "--wait 0s is not in 1ms.."},
		{"fetch S c --fill --no-wait", "--fill and --no-wait exclude each other"},
		{"fetch S c --group a.b", "--group: "},
		{"fetch S c --group g --min-pending 0", "--min-pending 0 is not in 1.."},
		{"consume S c --group g --min-ack-pending 0", "--min-ack-pending 0 is not in 1.."},
		{"consume S c --group g --priority 10", "--priority 10 is not in 0..9"},
		{"fetch a.b c", `"a.b" is not the name of a stream`},
		{"consume S c* ", `"c*" is not the name of a consumer`},
		{"info S.x c", `"S.x" is not the name of a stream`},
		{"unpin S c.x", `"c.x" is not the name of a consumer`},
		{"fetch S c --create a..b", `--create "a..b" is not a subject`},
		{"fetch S c --create a.>.b", `--create "a.>.b" is not a subject`},
		{"fetch S c --create=", "--create is empty"},
		{"fetch S c --embedded-port 99999", "--embedded-port 99999 is not in 0..65535"},
	} {
		dir := filepath.Join(t.TempDir(), "store")
		args := append(strings.Fields(tt.line), "--embedded", dir)
		if strings.Contains(tt.line, "S c ") && !strings.Contains(tt.line, "--create") && !strings.HasPrefix(tt.line, "unpin") {
			args = append(args, "--create", "s.>")
		}
		r := jetpullRun(t, args...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", tt.line, r.err)
		require.Contains(t, r.err, tt.want, tt.line)
		_, err := os.Stat(dir)
		require.ErrorIs(t, err, os.ErrNotExist, "%s has made a store", tt.line)
	}
}

// TestLimitsAreTheLibrarys sees that nothing is refused that the library takes.
func TestLimitsAreTheLibrarys(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(3)...)
	for _, line := range []string{
		"consume S c --count 1 --raw --concurrency 1792 --prefetch 1792",
		"consume S c --count 1 --raw --concurrency 1 --prefetch 1 --max-attempts 1 --drain-timeout 0s",
		"consume S c --count 1 --raw --max-attempts 2 --retry-delays 0s",
		"fetch S c --raw --count 1 --wait 1ms --fill",
	} {
		r := f.run(t, strings.Fields(line)...)
		require.NotEqual(t, cli.ExitUsage, r.code, "%s: %s", line, r.err)
	}
	require.Equal(t, cli.ExitUsage, f.run(t, "fetch", "S", "c", "--count", "2147483648").code)
}

// TestCreateRefusesGroups has a run ask for a group of a consumer that --create would
// make without groups: neither it nor the stream is made.
func TestCreateRefusesGroups(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "fetch", "NEW", "worker", "--create", "new.>", "--group", "g")
	require.Equal(t, cli.ExitUsage, r.code, r.err)
	require.Contains(t, r.err, "--group")
	_, err := f.js.Stream(t.Context(), "NEW")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

// TestServerIsToldOfWhenTheRunBegins has options that only the consumer's
// configuration rules out.
func TestServerIsAnnouncedWhenTheRunBegins(t *testing.T) {
	dir := t.TempDir()
	r := jetpullRun(t, "consume", "S", "c", "--embedded", dir, "--create", "s.>", "--idle", "50ms", "--concurrency", "2", "--prefetch", "2")
	require.Equal(t, cli.ExitNoMessages, r.code, r.err)
	require.Contains(t, r.err, "The embedded server listens on nats://127.0.0.1:")
	require.Contains(t, r.err, "It syncs to disk every 2s: a power failure loses the messages since the last sync.")
	require.Contains(t, r.err, " without authentication: every program on this machine can use it. ")
	r = jetpullRun(t, "consume", "S", "c", "--embedded", dir, "--idle", "50ms", "--json")
	require.Contains(t, jsonLines[struct{ Server string }](t, r.err)[0].Server, "nats://127.0.0.1:")
	r = jetpullRun(t, "consume", "S", "c", "--embedded", dir, "--max-attempts", "2", "--dead-letter", "s.dead")
	require.Equal(t, cli.ExitUsage, r.code, r.err)
	require.NotContains(t, r.err, "The embedded server listens")
}

func TestSchemeOfTheVariable(t *testing.T) {
	t.Setenv("NATS_URL", "foo://x")
	r := jetpullRun(t, "fetch", "S", "c")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, `NATS_URL: scheme "foo"`)
}
