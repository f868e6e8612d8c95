package relay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/jetpull/jetpull/internal/service/dashboard"
	"github.com/jetpull/jetpull/test/servertest"
)

// asyncPeer answers the first POST with 503, the next with 202, and its status endpoint with 202 once.
func asyncPeer(t *testing.T) *peer {
	polls := 0
	return newPeer(t, func(n int, r seen) (int, string) {
		switch {
		case r.Method == http.MethodGet && polls == 0:
			polls++
			return 202, ""
		case r.Method == http.MethodGet:
			return 200, `{"built":true}`
		case n == 1:
			return 503, ""
		}
		return 202, ""
	})
}

// sendTraced sends a message of a trace, or without one if traceparent is empty.
func (s *site) sendTraced(traceparent string, m object) {
	s.t.Helper()
	body, err := json.Marshal(m)
	require.NoError(s.t, err)
	req, err := http.NewRequest(http.MethodPost, s.url+"/v1/messages", bytes.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "Bearer git-token")
	if traceparent != "" {
		req.Header.Set("Traceparent", traceparent)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	require.Equal(s.t, http.StatusAccepted, resp.StatusCode)
}

// runOne sends a message that needs a retry, two polls and a callback, and waits for its end.
func (s *site) runOne(traceparent string) (receiver, callback *peer) {
	s.t.Helper()
	t := s.t.(*testing.T)
	receiver, callback = asyncPeer(t), newPeer(t, nil)
	s.receiver("ci", receiver.URL, object{"status_endpoint": receiver.URL + "/{source_id}/{message_id}", "rate_limit": 50})
	s.sender("git", callback.URL, "")
	s.sendTraced(traceparent, message("repo", "1", "ci"))
	s.awaitStatus("repo", "1", "DONE")
	return receiver, callback
}

// The dashboard and the alert rules use only metrics that a relay exposes.
func TestDashboardAndAlertsAgainstAScrape(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.runOne("")
	broken := newPeer(t, func(int, seen) (int, string) { return 400, "" })
	s.receiver("broken", broken.URL, nil)
	s.want(202, "POST", "/v1/messages", "git-token", message("repo", "2", "broken"))
	s.awaitStatus("repo", "2", "FAILED")
	var body []byte
	for _, want := range []string{
		`relay_backlog{receiver="ci"} 0`, `relay_callback_backlog{sender="git"} 0`, `relay_window_limit{receiver="ci"} 50`,
		`relay_failed_messages{receiver="broken"} 1`, `relay_attempt_seconds_count{receiver="ci",result="5xx"} 1`,
		`relay_end_to_end_seconds_count{receiver="ci"} 1`, `relay_response_seconds_count{receiver="ci"} 1`,
	} {
		// The backlogs are counted at intervals.
		eventually(t, func() bool {
			_, body = s.call("GET", "/metrics", adminToken, nil)
			return bytes.Contains(body, []byte(want+"\n"))
		}, "a scrape does not say "+want)
	}
	scrape, err := dashboard.ParseScrape(string(body))
	require.NoError(t, err)
	board, err := os.ReadFile("monitoring/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, scrape.CheckDashboard(board))
	require.Contains(t, string(body), `relay_pending_responses{receiver="ci"} 0`)
	require.NotContains(t, string(body), `relay_pending_responses{receiver="broken"}`, "it has no status endpoint")
	rules, err := os.ReadFile("monitoring/alerts.yaml")
	require.NoError(t, err)
	require.NoError(t, scrape.CheckRules(rules))
}

// Waiting messages are counted in the queue in which they wait.
func TestBacklogIsCounted(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", "http://127.0.0.1:1/", object{"paused": true})
	s.sender("git", "none", "")
	for _, id := range []string{"a", "b", "c"} {
		s.want(202, "POST", "/v1/messages", "git-token", message("repo", id, "ci"))
	}
	eventually(t, func() bool {
		_, body := s.call("GET", "/metrics", adminToken, nil)
		return strings.Contains(string(body), "relay_backlog{receiver=\"ci\"} 3\n") && !strings.Contains(string(body),
			"relay_oldest_seconds{receiver=\"ci\"} 0\n")
	}, "three messages are not counted")
	state := s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)
	require.EqualValues(t, 3, state["backlog"])
	require.Positive(t, state["oldest"])
}

// A response from the status endpoint after a POST without an answer is counted as any other, and so is the request for it.
func TestResponseAfterAnUnknownOutcomeIsCounted(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, func(_ int, got seen) (int, string) {
		if got.Method == http.MethodPost {
			return 0, ""
		}
		return 200, "1"
	})
	s.receiver("ci", r.URL, object{"status_endpoint": r.URL + "/{source_id}/{message_id}"})
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	s.awaitStatus("a", "1", "DONE")
	for _, line := range []string{`relay_polls_total{receiver="ci",status="2xx"} 1`, `relay_response_seconds_count{receiver="ci"} 1`} {
		eventually(t, func() bool {
			_, body := s.call("GET", "/metrics", adminToken, nil)
			return strings.Contains(string(body), line+"\n")
		}, "a scrape does not say "+line)
	}
}

// The metrics of a deleted receiver or sender are removed when nothing waits for it.
func TestMetricsOfWhatIsDeletedGo(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("gone", newPeer(t, nil).URL, nil)
	s.sender("away", newPeer(t, nil).URL, "a")
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "gone"))
	s.awaitStatus("a", "1", "DONE")
	scrape := func() string { _, body := s.call("GET", "/metrics", adminToken, nil); return string(body) }
	require.Contains(t, scrape(), `relay_end_to_end_seconds_count{receiver="gone"} 1`)
	require.Contains(t, scrape(), `relay_callbacks_total{result="2xx",sender="away"} 1`)
	s.want(204, "DELETE", "/v1/receivers/gone", adminToken, nil)
	s.want(204, "DELETE", "/v1/senders/away", adminToken, nil)
	eventually(t, func() bool {
		body := scrape()
		return !strings.Contains(body, `"gone"`) && !strings.Contains(body, `"away"`)
	}, "their series stay")
}

// One trace leads from the sender's POST over each POST and poll to the callback.
func TestOneTraceFromPostToCallback(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(noop.NewTracerProvider()) })
	const id = "0af7651916cd43dd8448eb211c80319c"
	s := startSite(t)
	receiver, callback := s.runOne("00-" + id + "-b7ad6b7169203331-01")

	byName := map[string][]sdktrace.ReadOnlySpan{}
	for _, span := range spans.Ended() {
		require.Equal(t, id, span.SpanContext().TraceID().String(), span.Name())
		require.Contains(t, span.Attributes(), attribute.String("relay.source_id", "repo"))
		require.Contains(t, span.Attributes(), attribute.String("relay.message_id", "1"))
		require.Contains(t, span.Attributes(), attribute.String("relay.receiver", "ci"))
		byName[span.Name()] = append(byName[span.Name()], span)
	}
	require.Len(t, byName["message"], 1)
	require.Len(t, byName["post"], 2)
	require.Len(t, byName["poll"], 2)
	require.Len(t, byName["callback"], 1)
	root := byName["message"][0]
	require.Equal(t, "b7ad6b7169203331", root.Parent().SpanID().String())
	for name, got := range map[string][]seen{"post": receiver.list()[:2], "poll": receiver.list()[2:], "callback": callback.list()} {
		for i, span := range byName[name] {
			require.Equal(t, root.SpanContext().SpanID(), span.Parent().SpanID())
			require.Equal(t, trace.SpanKindClient, span.SpanKind())
			require.Equal(t, "00-"+id+"-"+span.SpanContext().SpanID().String()+"-01", got[i].Header.Get("Traceparent"))
		}
	}
	require.Contains(t, byName["post"][0].Attributes(), attribute.Int("http.response.status_code", 503))
	require.Contains(t, byName["post"][1].Attributes(), attribute.Int("relay.attempt", 2))
}

// Without tracing a valid traceparent is passed on to receivers and callbacks. An invalid one is dropped.
func TestTraceParentIsPassedOn(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s := startSite(t)
	receiver, callback := s.runOne(parent)
	for _, r := range append(receiver.list(), callback.list()...) {
		require.Equal(t, parent, r.Header.Get("Traceparent"))
	}
	s.sendTraced(strings.Repeat("x", 4096), message("repo", "2", "ci"))
	s.awaitStatus("repo", "2", "DONE")
	require.Empty(t, callback.list()[1].Header.Get("Traceparent"))
}

// Each failure of a message is one line of the log, however often the list is read until the message is redriven.
func TestLogOfAFailure(t *testing.T) {
	t.Parallel()
	var out servertest.Log
	cfg := testConfig(t.TempDir())
	cfg.Relay.AutoRedrive = []time.Duration{200 * time.Millisecond}
	n, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&out, nil)))
	require.NoError(t, err)
	s := &site{t, n.URL()}
	s.receiver("ci", newPeer(t, func(int, seen) (int, string) { return 500, "" }).URL, object{"max_retries": 0})
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	eventually(t, func() bool {
		o := s.status("a", "1")
		return o["status"] == "FAILED" && o["redrives"] == 1.0 && len(s.failed("")) == 1
	}, "it is not redriven, or not on the list")
	require.NoError(t, n.Stop(context.Background()))
	require.Equal(t, 2, strings.Count(out.String(), "message failed"))
}

// Each step of a message is a record of the log that has its source, its ID and its trace.
func TestLogOfAMessage(t *testing.T) {
	t.Parallel()
	var out servertest.Log
	n, err := Start(t.Context(), testConfig(t.TempDir()), slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	s := &site{t, n.URL()}
	s.runOne("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.NoError(t, n.Stop(context.Background()))
	steps := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(out.String()))
	for lines.Scan() {
		var record struct{ Msg, Source, Message, Trace string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &record))
		if record.Source == "repo" && record.Message == "1" && record.Trace == "0af7651916cd43dd8448eb211c80319c" {
			steps[record.Msg]++
		}
	}
	require.Equal(t, map[string]int{"message from a sender": 1, "attempt": 2, "poll": 2, "callback": 1}, steps)
	require.NotContains(t, out.String(), "git-token")
	require.NotContains(t, out.String(), adminToken)
}

// A relay that cannot open its port logs that error alone, and none of its workers.
func TestLogOfAStartThatFails(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg := testConfig(t.TempDir())
	cfg.HTTP.Listener = taken.Addr().String()
	var out servertest.Log
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for range 4 { // the workers may not have started yet
		_, err = Start(t.Context(), cfg, log)
		require.ErrorContains(t, err, "choose another with --listen")
	}
	require.Empty(t, out.String())
}
