package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
)

func brokerRequest(t *testing.T, method, url string, header map[string]string, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

// The sample configuration runs, and what it seeds can be used.
func TestBrokerCommandWithTheSampleFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broker.cfg")
	require.NoError(t, os.WriteFile(file, []byte(broker.SampleConfig()), 0o600))
	url, stop := listen(t, brokercmd.New(), "--config", file)
	code, body := brokerRequest(t, http.MethodPost, url+"/channel/sample-channel/broadcast", map[string]string{
		"X-Broker-Channel-Token": "sample-channel-token", "X-Broker-Producer-ID": "sample-producer",
		"X-Broker-Producer-Token": "sample-producer-token", "Content-Type": "text/plain",
	}, "hello")
	require.Equal(t, http.StatusCreated, code, body)
	code, body = brokerRequest(t, http.MethodPost, url+"/channel/sample-channel/consumer/sample-consumer/claim?wait=5s", map[string]string{
		"X-Broker-Channel-Token": "sample-channel-token", "X-Broker-Consumer-Token": "sample-consumer-token",
	}, "")
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"Payload":"hello"`)
	require.NoError(t, stop())
}

// The original's command line, configuration and first curl work.
func TestBrokerCommandInPlaceOfTheOriginal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "webhook-broker.cfg")
	require.NoError(t, os.WriteFile(file, []byte("[rdbms]\ndialect=mysql\n[broker]\nmax-workers=250\n"), 0o600))
	root := newRootCommand()
	args := brokercmd.WithOriginalFlags(root, []string{"broker", "-config", file, "-migrate=./migration/sqls/", "-do-not-watch-conf-change"})
	require.Equal(t, []string{"--log-level", "error", "--config=f", "broker", "--command", "broker"},
		brokercmd.WithOriginalFlags(root, []string{"--log-level", "error", "-config=f", "broker", "-command", "broker"}), "the command can be behind flags")
	for _, others := range [][]string{{"info", "broker", "-config"}, {"broker", "health", "-migrate"}, {"-config"}, nil} {
		require.Equal(t, others, brokercmd.WithOriginalFlags(root, others), "not of a broker")
	}
	var printed buffer
	cmd := brokercmd.New()
	cmd.SetErr(&printed)
	url, stop := listen(t, cmd, args[1:]...)
	code, body := brokerRequest(t, http.MethodPost, url+"/channel/sample-channel/broadcast", map[string]string{
		"X-Broker-Channel-Token": "sample-channel-token", "X-Broker-Producer-Token": "sample-producer-token",
		"X-Broker-Producer-ID": "sample-producer", "Content-Type": "application/json",
	}, `{"test": "Hello World!"}`)
	require.Equal(t, http.StatusCreated, code, body)
	require.NoError(t, stop())
	require.Contains(t, printed.String(), "--migrate has no effect: there is no database")
	require.NotContains(t, printed.String(), "--command has no effect")
	for _, tt := range [][3]string{
		{"-config", "/does/not/exist", "/does/not/exist"}, {"-command", "prune", `--command "prune": only broker is known`}, {"-confg", file, "unknown"},
	} {
		var errOut strings.Builder
		require.Equal(t, 2, execute(t.Context(), []string{"broker", tt[0], tt[1]}, nil, io.Discard, &errOut), tt)
		require.Contains(t, errOut.String(), tt[2])
	}
}

func TestBrokerCommandRefusesByName(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--broker-max-retry", "many"}, "flag --broker-max-retry"},
		{[]string{"--listen", "0.0.0.0:0"}, "[http] listener"},
		{[]string{"--sync", "never"}, "[nats] sync"},
		{[]string{"--config", "/does/not/exist"}, "read the configuration"},
		{[]string{"stray"}, "stray"},
	} {
		cmd := brokercmd.New()
		cmd.SetArgs(tt.args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), tt.want)
	}
}

// Whoever starts a broker sees what it makes of its configuration, whatever the log level, and sees it once.
func TestBrokerCommandSaysWhatTheLogDoesNot(t *testing.T) {
	clamped := "[broker] max-workers: 70000 is more than 65536 and counts as that"
	retention := "finished messages are deleted 7 days after their broadcast; [prune] message-retention-days changes that"
	for level, plain := range map[string][]string{"error": {clamped, retention}, "warn": {retention}, "info": nil} {
		var printed buffer
		cmd := brokercmd.New()
		cmd.SetErr(&printed)
		_, stop := listen(t, cmd, "--log-level", level, "--broker-max-workers", "70000")
		require.NoError(t, stop())
		for _, text := range []string{clamped, retention} {
			require.Equal(t, 1, strings.Count(printed.String(), text), "%s: %s", level, &printed)
			require.Equal(t, slices.Contains(plain, text), strings.Contains(printed.String(), "broker: "+text+"\n"), "%s: %s", level, &printed)
		}
	}
}

func TestBrokerCommandPrintsTheSample(t *testing.T) {
	var out strings.Builder
	cmd := brokercmd.New()
	cmd.SetArgs([]string{"--print-config"})
	cmd.SetOut(&out)
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Equal(t, broker.SampleConfig(), out.String())
}
