package main

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// TestConsumeWithACommandAndAckPolicyNone: nothing is redelivered, so there are no
// retry delays to set.
func TestConsumeWithACommandAndAckPolicyNone(t *testing.T) {
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	f.publish(t, "one")
	r := f.run(t, "consume", "S", "c", "--count", "1", "-q", "--", "sh", "-c", "cat; echo")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, "one\n", r.out)
}
