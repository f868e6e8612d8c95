package main

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// TestConsumeIdleTellsProgress has a run whose end is known by the backlog alone.
func TestConsumeIdleShowsProgress(t *testing.T) {
	t.Parallel()
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(3)...)
	r := f.run(t, "consume", "S", "c", "--idle", "100ms", "--", "sleep", "1.1")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Regexp(t, `^consume: 2 of 3 in \d\.\d+s, 1/s\n3 acknowledged in \S+s, 1/s\n$`, r.err)
	r = f.run(t, "consume", "S", "c", "--idle", "100ms", "-q")
	require.Equal(t, cli.ExitNoMessages, r.code, r.err)
}
