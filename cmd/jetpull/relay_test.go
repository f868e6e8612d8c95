package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/test/servertest"
)

func TestRelayCommandWithTheSampleFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.cfg")
	require.NoError(t, os.WriteFile(file, []byte(relay.SampleConfig()), 0o600))
	url, stop := listen(t, relaycmd.New(), "--config", file)
	resp, err := http.Get(url + "/readyz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, stop())
}

// With --nats everything is kept at that server, and nothing in a store of the process.
func TestRelayCommandOnAServer(t *testing.T) {
	srv, dir := servertest.RunServer(t), filepath.Join(t.TempDir(), "store")
	_, stop := listen(t, relaycmd.New(), "--nats", srv.URL(), "--store-dir", dir, "--name", "other")
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	_, err = js.Stream(t.Context(), "other_from_sender")
	require.NoError(t, err)
	require.NoError(t, stop())
	require.NoDirExists(t, dir)
}

func TestRelayCommandRefusesByName(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.cfg")
	require.NoError(t, os.WriteFile(bad, []byte("[relay]\nspeed = 3\n[nosuch]\nx = 1\n"), 0o600))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--relay-concurrency", "many"}, "flag --relay-concurrency"},
		{[]string{"--listen", "0.0.0.0:0"}, "[http] listener"},
		{[]string{"--sync", "never"}, "[nats] sync"},
		{[]string{"--name", "a.b"}, "[nats] name"},
		{[]string{"--replicas", "3"}, "[nats] replicas"},
		{[]string{"--relay-networks", "nowhere"}, "[relay] networks"},
		{[]string{"--config", "/does/not/exist"}, "read the configuration"},
		{[]string{"--config", bad}, "[relay] speed: no such key"},
		{[]string{"--config", bad}, "[nosuch]: no such section"},
		{[]string{"stray"}, "stray"},
	} {
		cmd := relaycmd.New()
		cmd.SetArgs(tt.args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), tt.want)
	}
}

func TestRelayCommandPrintsTheSample(t *testing.T) {
	var out strings.Builder
	cmd := relaycmd.New()
	cmd.SetArgs([]string{"--print-config"})
	cmd.SetOut(&out)
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Equal(t, relay.SampleConfig(), out.String())
}

// A reader who types the commands of the tutorial, line by line, gets what it says.
func TestTutorialOfTheRelay(t *testing.T) {
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the tutorial's commands need %s: %v", tool, err)
		}
	}
	url, stop := listen(t, relaycmd.New())
	first, got, stopFirst := startEcho(t)
	second, _, stopSecond := startEcho(t, "--status", "422")
	commands, err := commandsOf("../../docs/tutorial-relay.md", "")
	require.NoError(t, err)
	typed := func(command string) string {
		command = strings.NewReplacer("http://127.0.0.1:9090", first, "http://127.0.0.1:9091", second).Replace(command)
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", command)
		cmd.Env = append(os.Environ(), "R="+url)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", command, out)
		return string(out)
	}
	var outputs []string
	for _, command := range commands {
		switch command {
		case "R=http://127.0.0.1:8080\n": // where jetpull relay listens by default
		case "jetpull relay\n", "jetpull relay echo\n", "jetpull relay echo --listen 127.0.0.1:9091 --status 422\n": // they run already
		case "jetpull relay echo --listen 127.0.0.1:9091\n":
			require.Equal(t, cli.ExitDone, stopSecond())
			_, _, stopSecond = startEcho(t, "--listen", strings.TrimPrefix(second, "http://"))
		default:
			outputs = append(outputs, typed(command))
		}
	}
	require.Len(t, outputs, 8)
	var result struct {
		Status   string
		Response struct{ Got struct{ Branch string } }
	}
	require.NoError(t, json.Unmarshal([]byte(outputs[1]), &result), outputs[1])
	require.Equal(t, "DONE", result.Status)
	require.Equal(t, "main", result.Response.Got.Branch)
	require.Contains(t, outputs[2], `"code":200`)
	require.Equal(t, "POST repo/push-1 1: \"{\\\"branch\\\": \\\"main\\\"}\"\n", got())
	require.Contains(t, outputs[4], `"status":"FAILED"`)
	require.Contains(t, outputs[5], `"push-2"`)
	require.Eventually(t, func() bool { return strings.Contains(typed("curl -fsS $R/v1/messages/repo/push-2"), `"status":"DONE"`) },
		30*time.Second, 50*time.Millisecond)
	require.NoError(t, stop())
	require.Equal(t, cli.ExitDone, stopFirst())
	require.Equal(t, cli.ExitDone, stopSecond())
}

// startEcho runs jetpull relay echo until stop is called. It returns its URL, and a function that returns the lines of what it got.
func startEcho(t *testing.T, args ...string) (url string, got func() string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut buffer
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, append([]string{"relay", "echo", "--listen", "127.0.0.1:0"}, args...), strings.NewReader(""), &out, &errOut)
	}()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "\n") }, 30*time.Second, time.Millisecond, errOut.String)
	first, _, _ := strings.Cut(out.String(), "\n")
	url, ok := strings.CutPrefix(first, "echo: listening on ")
	require.True(t, ok, first)
	got = func() string { return strings.TrimPrefix(out.String(), first+"\n") }
	return url, got, func() int {
		cancel()
		return <-code
	}
}

// The receiver for trying a relay prints its address, answers as configured, and shuts down cleanly.
func TestEcho(t *testing.T) {
	url, _, stop := startEcho(t, "--status", "503")
	resp, err := http.Post(url, "text/plain", strings.NewReader("not JSON"))
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.JSONEq(t, `{"got":"not JSON"}`, string(answer))
	http.DefaultClient.CloseIdleConnections()
	require.Equal(t, cli.ExitDone, stop())
	for _, args := range [][]string{{"--listen", "0.0.0.0:0"}, {"--listen", "x"}, {"--status", "99"}} {
		require.Equal(t, cli.ExitUsage, jetpullRun(t, append([]string{"relay", "echo"}, args...)...).code, args)
	}
}
