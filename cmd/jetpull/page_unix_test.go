//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// shellWorker acknowledges all messages, and notes that in a file.
const shellWorker = `while IFS= read -r line; do
	id=${line#*:}
	echo worked >>said
	echo "{\"id\":${id%%,*},\"outcome\":\"ack\"}"
done
`

// The commands of docs/command.md and docs/retries.md that are clients of a server run as they are written there. Those that go on until they
// are interrupted get a --count, or an --idle.
func TestPageOfTheCommand(t *testing.T) {
	needShell(t)
	page, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	page, _, found := bytes.Cut(page, []byte("\n## Workers in any language\n")) // TestWorkersOfThePage runs those
	require.True(t, found)
	retries, err := os.ReadFile("../../docs/retries.md")
	require.NoError(t, err)
	page = append(page, retries...)
	r := newFeedReader(t, []string{"", ""})
	r.env = append(r.env, "NATS_URL="+servertest.RunServer(t).URL())
	for name, text := range map[string]string{
		"ship.sh": "#!/bin/sh\ncat >/dev/null\n", "worker.sh": "#!/bin/sh\n" + shellWorker, "orders.jsonl": "{\"id\":1}\n{\"id\":2}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o755))
	}
	r.do(t, "jetpull publish dead.orders --create DEAD --count 0")
	got := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^jetpull (?:publish|consume|fetch|consumers|dlq) .*$`).FindAllString(string(page), -1) {
		line, _, _ = strings.Cut(line, "  #")
		line, _, _ = strings.Cut(line, " | ")
		line = strings.Replace(line, "--at 2027-", "--at 2999-", 1) // a time to come
		if strings.HasPrefix(line, "jetpull consume ") {
			line = strings.Replace(line, "ORDERS worker", "ORDERS worker --count 5", 1)
		}
		if strings.HasPrefix(line, "jetpull dlq capture ") {
			line += " --idle 1s"
		}
		got[line] = r.do(t, line)
	}
	for part, want := range map[string]string{
		"--count 1000": "1,000 published", "--lines": "2 published", "--concurrency 8": "5 acknowledged", "--worker": "5 acknowledged",
		"fetch":           `{\"id\":16}`,
		"consumers pause": `"paused":true,"pause_until":"`, "consumers resume": `"paused":false`, "consumers reset": `"reset_to":500`,
		"dlq requeue": "would requeue 0", "dlq capture": "added to stream DEAD",
		"--cron": "scheduled under reports.schedules.daily", "--at": "scheduled under reports.schedules.once",
	} {
		found := false
		for line, out := range got {
			found = found || strings.Contains(line, part) && strings.Contains(out, want)
		}
		require.True(t, found, "%s: %q\n%v", part, want, got)
	}
}
