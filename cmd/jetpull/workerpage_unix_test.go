//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consumecmd/perform"
)

// Each program of docs/command.md runs with the command line that the page has for it, and answers as the page says.
func TestWorkersOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	for _, l := range []struct{ file, tool, debian string }{
		{"worker.py", "python3", "python3"}, {"worker.mjs", "node", "nodejs"}, {"worker.sh", "sh", "dash"},
	} {
		t.Run(l.file, func(t *testing.T) {
			needTool(t, l.tool, l.debian)
			program := regexp.MustCompile("(?s)```\\w+\n(?:#|//) " + regexp.QuoteMeta(l.file) + "\n.*?```").Find(page)
			require.NotNil(t, program)
			_, text, _ := strings.Cut(strings.TrimSuffix(string(program), "```"), "\n")
			r := newFeedReader(t, []string{"", ""})
			require.NoError(t, os.WriteFile(filepath.Join(r.dir, l.file), []byte(text), 0o600))
			f := newFixture(t, jetstream.ConsumerConfig{})
			f.publish(t, append(strings.Split(strings.Repeat(`{"order":17},`, 200), ",")[:200], "no order")...)
			line := regexp.MustCompile(`(?m)^jetpull consume ORDERS worker (--worker.* ` + regexp.QuoteMeta(l.file) + `)`).FindSubmatch(page)
			require.NotNil(t, line)
			args := strings.Fields("consume S c --idle 2s --json " + strings.Replace(string(line[1]), l.file, filepath.Join(r.dir, l.file), 1))
			got := f.run(t, args...)
			require.Equal(t, cli.ExitFailed, got.code, got.err)
			outcomes := map[string]int{}
			for _, line := range jsonLines[perform.Result](t, got.out) {
				outcomes[line.Outcome]++
			}
			require.Equal(t, map[string]int{"acknowledged": 200, "terminated": 1}, outcomes, got.err)
			require.Equal(t, 200, strings.Count(got.err, "shipped "))
			f.settled(t, 201)
		})
	}
}

// A program that cannot be started fails no message: they wait until it can.
func TestWorkerThatCannotStart(t *testing.T) {
	needShell(t)
	t.Chdir(t.TempDir())
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(3)...)
	require.NoError(t, os.WriteFile("worker", []byte("#!/no/such/interpreter\n"), 0o700))
	_, errOut, stop := f.start(t, "consume", "S", "c", "--worker", "--max-attempts", "1", "--", "./worker")
	require.Eventually(t, func() bool { return strings.Count(errOut.String(), "is started again") > 1 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, os.WriteFile("good", []byte("#!/bin/sh\n"+shellWorker), 0o700))
	require.NoError(t, os.Rename("good", "worker"))
	f.settled(t, 3)
	require.Equal(t, cli.ExitDone, stop(), errOut.String())
	require.Contains(t, errOut.String(), "3 acknowledged in ")
}
