//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// feedReader is a reader who does what docs/tutorial-feed.md says, in a folder of their own.
type feedReader struct {
	dir string
	env []string
}

func newFeedReader(t *testing.T, scripts []string) *feedReader {
	t.Helper()
	dir := t.TempDir()
	r := &feedReader{dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))}
	for name, text := range map[string]string{
		"bin/jetpull":      fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asJetpull, os.Args[0]),
		"rank.sh":          scripts[0],
		"www/cgi-bin/item": scripts[1],
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	return r
}

func (r *feedReader) command(line string) *exec.Cmd {
	cmd := exec.Command("sh", "-euc", line)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

func (r *feedReader) do(t *testing.T, line string) string {
	t.Helper()
	out, err := r.command(line).CombinedOutput()
	require.NoError(t, err, "%s\n%s", line, out)
	return string(out)
}

// until runs a command that goes on, until the condition holds, and stops it.
func (r *feedReader) until(t *testing.T, line string, signal syscall.Signal, condition func(out string) bool) {
	t.Helper()
	var out buffer
	cmd := r.command("exec " + line)
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.Eventually(t, func() bool { return condition(out.String()) }, time.Minute, 50*time.Millisecond, "%s\n%s", line, &out)
	require.NoError(t, cmd.Process.Signal(signal))
	if err := cmd.Wait(); signal == syscall.SIGTERM {
		require.NoError(t, err, "%s\n%s", line, out.String())
	}
}

func (r *feedReader) complete(t *testing.T) func(string) bool {
	return func(string) bool {
		return strings.Contains(r.do(t, "jetpull feed show resumes --json"), `"status":"Complete"`)
	}
}

// ranking is the list, which has to be there and in order.
func (r *feedReader) ranking(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "ranking.txt"))
	require.NoError(t, err)
	list := regexp.MustCompile(`(?m)^(\d{3}) resume \d+$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, list, 10, string(text))
	for i := range list[1:] {
		require.GreaterOrEqual(t, list[i][1], list[i+1][1])
	}
}

// A reader who types the commands of the tutorial, line by line, has a ranked list after three of them.
func TestTutorialOfTheFeed(t *testing.T) {
	t.Parallel()
	needShell(t)
	text, err := os.ReadFile("../../docs/tutorial-feed.md")
	require.NoError(t, err)
	var scripts []string
	for _, block := range regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		scripts = append(scripts, block[1])
	}
	require.Len(t, scripts, 2)
	handler, err := os.ReadFile("../../examples/feed-handler/main.go")
	require.NoError(t, err)
	_, program, _ := strings.Cut(string(handler), "\npackage ")
	require.Contains(t, string(text), "```go\npackage "+program+"```", "examples/feed-handler has the tutorial's program")

	r := newFeedReader(t, scripts)
	var commands []string
	for _, heading := range []string{"Add items, and process them", "Look at the work", "Repair a failure"} {
		lines, err := commandsOf("../../docs/tutorial-feed.md", heading)
		require.NoError(t, err)
		commands = append(commands, lines...)
	}
	resumes := 500
	require.Greater(t, len(commands), 3)
	require.Contains(t, commands[0], "seq 500 ")
	if testing.Short() {
		resumes = 50
		commands[0] = strings.Replace(commands[0], "500", "50", 1)
	}
	for i, line := range commands {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(line, "--exec"):
			require.Equal(t, 2, i, "the third command ends with the list")
			r.until(t, line, syscall.SIGTERM, r.complete(t))
			r.ranking(t)
		case strings.HasSuffix(line, "feed watch"):
			r.until(t, line, syscall.SIGTERM, func(out string) bool { return strings.Contains(out, "every partition is complete") })
		default:
			r.do(t, line)
		}
	}
	require.Equal(t, fmt.Sprintln(resumes+1), r.do(t, "jetpull feed ls resumes | grep -c Complete"))

	t.Run("CGI", func(t *testing.T) {
		if _, err := exec.LookPath("busybox"); err != nil {
			t.Skip(err)
		}
		lines := regexp.MustCompile(`(?m)^    (busybox .*)\n    (jetpull feed --handler http://127\.0\.0\.1:8080(.*) .*)$`).FindStringSubmatch(string(text))
		require.NotNil(t, lines)
		r := newFeedReader(t, scripts)
		for _, line := range commands[:2] {
			r.do(t, strings.Replace(line, "seq 500", "seq 30", 1))
		}
		// Another port: 8080 may be taken.
		elsewhere := strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:18081")
		r.until(t, elsewhere.Replace(lines[1]), syscall.SIGKILL, func(string) bool {
			r.until(t, elsewhere.Replace(lines[2]), syscall.SIGTERM, r.complete(t))
			return true
		})
		r.ranking(t)
	})
}
