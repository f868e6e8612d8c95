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

func TestStreams(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "one", "two")
	for line, want := range map[string]string{
		"streams ls":        `(?m)^stream +subjects +messages +bytes +consumers +last time\n─.*\nS +\["s\.>"\] +2 `,
		"streams info S":    `"messages": 2,`,
		"consumers ls S":    `(?m)^consumer +filter +pending +ack pending +redelivered +waiting pulls +paused\n─.*\nc +2 +0 +0 +0 +false$`,
		"streams ls -j":     `^{"stream":"S","subjects":\["s\.>"\],"messages":2,`,
		"consumers ls S -j": `^{"stream":"S","consumer":"c",`,
	} {
		words := strings.Fields(line)
		r := jetpullRun(t, append(words, "--nats", f.url)...)
		require.Equal(t, cli.ExitDone, r.code, r.err)
		require.Regexp(t, want, r.out, line)
	}
	for _, line := range []string{"streams info NONE", "consumers ls NONE"} {
		r := jetpullRun(t, append(strings.Fields(line), "--nats", f.url)...)
		require.Equal(t, cli.ExitError, r.code)
		require.Contains(t, r.err, "stream \"NONE\": stream not found; see what there is with: jetpull streams ls")
	}
}

func TestCompletionOfNames(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	require.NoError(t, os.MkdirAll(filepath.Join(config, "nats", "context"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(config, "nats", "context", "home.json"), []byte("{}"), 0o600))
	for line, want := range map[string]string{
		"fetch --nats " + f.url:          "S",
		"consume --nats " + f.url + " S": "c",
		"dlq ls --nats " + f.url:         "S",
		"info --context":                 "home",
	} {
		r := jetpullRun(t, append([]string{"__complete"}, strings.Split(line+" ", " ")...)...)
		require.Equal(t, cli.ExitDone, r.code, r.err)
		require.Equal(t, want+"\n:4\n", r.out, line)
	}
}
