package main

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// TestCreateSaysWhatIsThere has --create name other subjects than those of a stream
// that exists.
func TestCreateSaysWhatIsThere(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "fetch", "S", "new", "--create", "q.>,s.a", "--no-wait")
	require.Equal(t, cli.ExitNoMessages, r.code, r.err)
	require.Contains(t, r.err, `jetpull: stream "S" exists and is not changed: it has the subjects ["s.>"], not ["q.>" "s.a"]`)
	r = f.run(t, "fetch", "S", "new", "--create", "q.>", "--no-wait", "--json")
	require.Contains(t, jsonLines[struct{ Problem string }](t, r.err)[0].Problem, `stream "S" exists`)
	r = f.run(t, "fetch", "S", "new", "--create", "s.>", "--no-wait")
	require.Equal(t, "jetpull: fetch from consumer \"new\" on stream \"S\": no messages\n", r.err)
	c, err := f.js.Consumer(t.Context(), "S", "new")
	require.NoError(t, err)
	require.Equal(t, jetstream.AckExplicitPolicy, c.CachedInfo().Config.AckPolicy)
}

// TestPublishCreatesNoStreamTwice has --create name a stream that is not over the subject.
func TestPublishCreatesNoStreamTwice(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "publish", "x.y", "1", "--create", "S", "--timeout", "1s")
	require.Equal(t, cli.ExitError, r.code, r.err)
	require.Equal(t, "jetpull: stream \"S\" is there already, over [\"s.>\"], not over x.y; name another with --create\n", r.err)
	r = f.run(t, "publish", "s.y", "1", "--create", "S", "-q")
	require.Equal(t, result{}, r)
}
