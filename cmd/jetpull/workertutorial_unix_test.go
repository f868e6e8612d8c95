//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// The jetpull commands of docs/tutorial-worker.md have the effects that the page describes. In place of its program, which has a test of its own, a
// command creates the stream and the consumer, and settles the first two messages.
func TestTutorialOfTheWorker(t *testing.T) {
	t.Parallel()
	needShell(t)
	commands, err := commandsOf("../../docs/tutorial-worker.md", "")
	require.NoError(t, err)
	r := newFeedReader(t, []string{"", ""})
	r.env = append(r.env, "NATS_URL="+servertest.RunServer(t).URL())
	outputs := map[string]string{}
	for _, line := range commands {
		line = strings.TrimSpace(line)
		switch {
		case line == "jetpull server":
		case strings.HasPrefix(line, "go run "):
			r.do(t, "jetpull publish orders.new '' --create ORDERS --count 0")
		case strings.HasPrefix(line, "jetpull info "):
			r.do(t, "jetpull consume ORDERS worker --create 'orders.>' --count 2 -- cat")
			outputs[line] = r.do(t, line)
		case strings.HasSuffix(line, "-- false"):
			outputs[line] = r.do(t, line+" || [ $? = 5 ]")
		default:
			outputs[line] = r.do(t, line)
		}
	}
	for part, want := range map[string]string{
		"info": `"pending": 0,`, "--count 2 -- cat": `{"id":2,"customer":"Grace"}`, "-- false": "1 dead-lettered",
		"dlq ls":      "command false: exit status 1",
		"dlq requeue": "requeued 1", "--count 1 -- cat": `{"id":3,"customer":"Edsger"}`,
	} {
		found := false
		for line, out := range outputs {
			found = found || strings.Contains(line, part) && strings.Contains(out, want)
		}
		require.True(t, found, "%s: %q\n%v", part, want, outputs)
	}
}
