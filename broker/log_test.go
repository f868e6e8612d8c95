package broker

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/test/servertest"
)

// logged parses the lines of a JSON log.
func logged(t *testing.T, log *servertest.Log) (lines []map[string]any) {
	t.Helper()
	for line := range bytes.Lines([]byte(log.String())) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal(line, &entry))
		lines = append(lines, entry)
	}
	return lines
}

// The log names jobs and states as the HTTP interface does. A job that becomes dead is logged as a warning, whatever the cause.
func TestLogSpeaksOfJobsAsTheInterfaceDoes(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.MaxRetry = 1
	var log servertest.Log
	n, err := Start(t.Context(), cfg, slog.New(slog.NewJSONHandler(&log, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { stopNode(t, n) })
	putConsumer(t, n, "push", receiver.URL, nil)
	putConsumer(t, n, "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	broadcast(t, n, "m", "x", nil)
	waitState(t, n, "m", "push", "DEAD")
	pulled := claim(t, n, "pull", "?limit=1")[0].ID
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
	for range 2 { // the second changes nothing
		code, body, _ := call(t, n, "POST", "/channel/ch/consumer/pull/job/"+pulled, tokens, `{"NextState":"DEAD"}`)
		require.Equal(t, 202, code, body)
	}

	failed, dead := map[string][]any{}, map[string]string{}
	deaths := func() map[string]string {
		failed, dead = map[string][]any{}, map[string]string{}
		for _, line := range logged(t, &log) {
			switch line["msg"] {
			case "callback failed":
				job := line["job"].(string)
				failed[job] = append(failed[job], line["next"])
			case "a job is dead":
				require.Equal(t, "WARN", line["level"])
				require.Empty(t, dead[line["job"].(string)], "said twice")
				dead[line["job"].(string)] = line["consumer"].(string)
			}
		}
		return dead
	}
	pushed := domain.JobID{Seq: 1, Consumer: mustConsumer(t, n, "push").Number}.String()
	waitUntil(t, func() bool { return len(deaths()) == 2 }, "the log does not have the dead jobs")
	require.Equal(t, map[string]string{pushed: "push", pulled: "pull"}, dead)
	require.Equal(t, map[string][]any{pushed: {"QUEUED", "DEAD"}}, failed)
	require.NotContains(t, log.String(), "Seq")
}

// The log says which setting forbids a callback.
func TestRefusedCallbacks(t *testing.T) {
	cfg := testConfig(t)
	cfg.Connection.Networks, cfg.Dispatch.MaxRetry = "public", 0
	var log servertest.Log
	n, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { stopNode(t, n) })
	putConsumer(t, n, "k", "http://127.0.0.1:9/", nil)
	broadcast(t, n, "m", "x", nil)
	waitState(t, n, "m", "k", "DEAD")
	dead := regexp.MustCompile(`level=WARN msg="a job is dead" channel=ch consumer=k .*networks \(--consumer-connection-networks\)`)
	require.Eventually(t, func() bool { return dead.MatchString(log.String()) }, waitLong, waitStep) // it is logged after the state is stored
}
