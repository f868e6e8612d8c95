package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// TestErrorsNameFlags checks that errors of the library, which knows the consumer, name
// the flags of the command line.
func TestErrorsNameFlags(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{MaxDeliver: 3})
	f.publish(t, "Group MaxWait")
	for _, tt := range []struct{ line, want string }{
		{"consume S c --max-attempts 4", "--max-attempts: 4 is more than the consumer's MaxDeliver of 3"},
		{"consume S c --max-attempts 2 --dead-letter s.x", `--dead-letter: "s.x" is delivered by consumer "c" itself`},
		{"fetch S c --group Group", `--group: "Group": consumer "c" has no priority groups; leave it out`},
		{"fetch S c --min-pending 3", "--min-pending: needs a consumer with the priority policy overflow"},
	} {
		r := f.run(t, strings.Fields(tt.line)...)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, "jetpull: "+tt.want, tt.line)
		r = f.run(t, append(strings.Fields(tt.line), "--json")...)
		require.Contains(t, jsonLines[struct{ Error string }](t, r.err)[0].Error, tt.want[:10], "in JSON too")
	}
}

// TestErrorsSayWhatToDo has names that do not exist.
func TestErrorsSayWhatToDo(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	for _, tt := range []struct {
		line string
		want []string
	}{
		{"fetch S nobody", []string{`consumer "nobody" on stream "S": consumer not found; `, "--create SUBJECTS", "jetpull consumers ls S"}},
		{"consume nowhere c", []string{`consumer "c" on stream "nowhere": stream not found; `, "--create SUBJECTS", "jetpull streams ls"}},
		{"info S nobody", []string{"consumer not found; ", "jetpull consumers ls S"}},
		{"unpin nowhere c", []string{"stream not found; ", "jetpull streams ls"}},
		{"consumers pause S nobody --for 1h", []string{"consumer not found; ", "jetpull consumers ls S"}},
		{"consumers resume nowhere c", []string{"stream not found; ", "jetpull streams ls"}},
		{"consumers reset S nobody", []string{"consumer not found; ", "jetpull consumers ls S"}},
		{"partition ls none", []string{"bucket not found; no program has opened a set of this name"}},
		{"consumers reset nowhere c --to 5", []string{"stream not found; ", "jetpull streams ls"}},
	} {
		r := f.run(t, strings.Fields(tt.line)...)
		require.Equal(t, cli.ExitError, r.code, r.err)
		for _, want := range tt.want {
			require.Contains(t, r.err, want, tt.line)
		}
		require.NotContains(t, r.err, "err_code", tt.line)
		if !strings.Contains(strings.Join(tt.want, ""), "--create") {
			require.NotContains(t, r.err, "--create", "%s has no such flag", tt.line)
		}
	}
}

// TestConsumerDeleted deletes the consumer of a run.
func TestConsumerDeleted(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	_, errOut, stop := f.start(t, "consume", "S", "c")
	require.Eventually(t, func() bool { return f.info(t).NumWaiting > 0 }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, f.js.DeleteConsumer(t.Context(), "S", "c"))
	require.Eventually(t, func() bool { return strings.Contains(errOut.String(), "acknowledged in") }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitError, stop())
	require.Contains(t, errOut.String(), `; it was deleted while it was used: create it again, and restart the command`)
}
