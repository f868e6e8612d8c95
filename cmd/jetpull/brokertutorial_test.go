package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// A reader who types the commands of the tutorial, line by line, gets what it says.
func TestTutorialOfTheBroker(t *testing.T) {
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the tutorial's commands need %s: %v", tool, err)
		}
	}
	url, stop := listen(t, brokercmd.New())
	receiver, got, stopEcho := startEcho(t)
	var claimed struct {
		Result []struct{ ID, ClaimToken string }
	}
	commands, err := commandsOf("../../docs/tutorial-broker.md", "")
	require.NoError(t, err)
	var outputs []string
	for _, command := range commands {
		if strings.HasPrefix(command, "B=") {
			require.Equal(t, "B=http://127.0.0.1:8080\n", command, "where jetpull broker listens by default")
			continue
		}
		if strings.HasPrefix(command, "jetpull ") {
			continue // what runs in a terminal of its own: the broker and the receiver above
		}
		command = strings.ReplaceAll(command, "http://127.0.0.1:9090", receiver)
		if len(claimed.Result) == 1 {
			command = strings.NewReplacer("JOB_ID", claimed.Result[0].ID, "CLAIM_TOKEN", claimed.Result[0].ClaimToken).Replace(command)
		}
		if strings.Contains(command, "/replay") {
			require.Eventually(t, func() bool { return strings.Count(got(), "one table") == 1 }, 30*time.Second, 10*time.Millisecond)
		}
		out := typed(t, url, command)
		if strings.Contains(command, "/claim?") {
			require.NoError(t, json.Unmarshal([]byte(out), &claimed), out)
			require.Len(t, claimed.Result, 1, out)
		}
		outputs = append(outputs, out)
	}
	require.Len(t, outputs, 10)
	require.Contains(t, outputs[3], "201 Created")
	require.Contains(t, outputs[3], "Location: /channel/orders/message/order-1")
	require.Contains(t, outputs[4], `"Payload":"two chairs"`)
	require.Contains(t, outputs[5], "202 Accepted")
	require.Contains(t, outputs[6], `"Status":"DELIVERED"`)
	require.Contains(t, outputs[9], "202 Accepted")
	require.Eventually(t, func() bool { return strings.Count(got(), "one table") == 2 }, 30*time.Second, 10*time.Millisecond)

	// The commands of the reference are about the same channel and consumer.
	for heading, want := range map[string]string{
		"Callbacks": `"Headers":{"X-Api-Key":"…"}`, "Receivers that fail": `"State":"active"`, "Search": `"Result":[]`, "Replay": "202 Accepted",
		"Drop a backlog": `{"Count":1}`,
	} {
		commands, err := commandsOf("../../docs/broker-http.md", heading)
		require.NoError(t, err)
		require.NotEmpty(t, commands, heading)
		last := ""
		for _, command := range commands {
			last = typed(t, url, command)
		}
		require.Contains(t, last, want, heading)
	}
	require.NoError(t, stop())
	require.Equal(t, cli.ExitDone, stopEcho())
}

// typed runs a command of a page at a broker.
func typed(t *testing.T, url, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", command)
	cmd.Env = append(os.Environ(), "B="+url)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}
