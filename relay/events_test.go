package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reportedEvent is the body of a request to the operator's URL.
type reportedEvent struct {
	Event, Receiver, Reason string
	Count                   int
	At                      time.Time
}

func (s *site) events(operator *peer) (all []reportedEvent) {
	s.t.Helper()
	for _, r := range operator.list() {
		var e reportedEvent
		require.NoError(s.t, json.Unmarshal([]byte(r.Body), &e))
		require.WithinDuration(s.t, time.Now(), e.At, waitLong)
		e.At = time.Time{}
		all = append(all, e)
	}
	return all
}

// Each failure event arrives at the operator's URL. The failed messages of one receiver and reason arrive in few events.
func TestEventsArrive(t *testing.T) {
	t.Parallel()
	operator := newPeer(t, nil)
	s := startSite(t, func(c *Config) { c.Relay.EventURL = operator.URL })
	gone := newPeer(t, func(int, seen) (int, string) { return http.StatusGone, "" })
	refuses := newPeer(t, func(int, seen) (int, string) { return http.StatusBadRequest, "" })
	var up atomic.Bool
	fails := newPeer(t, func(int, seen) (int, string) {
		if up.Load() {
			return http.StatusOK, ""
		}
		return http.StatusInternalServerError, ""
	})
	s.receiver("gone", gone.URL, nil)
	s.receiver("refuses", refuses.URL, nil)
	s.receiver("fails", fails.URL, object{"max_retries": 1000})
	const failed = 20
	for i := range failed {
		s.want(202, "POST", "/v1/messages", adminToken, message("a", fmt.Sprint(i), "refuses"))
	}
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "gone", "gone"))
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "fails", "fails"))
	arrives := func(e reportedEvent) {
		t.Helper()
		eventually(t, func() bool {
			for _, one := range s.events(operator) {
				if one == e {
					return true
				}
			}
			return false
		}, fmt.Sprint("it does not arrive: ", e))
	}
	arrives(reportedEvent{Event: "receiver disabled", Receiver: "gone", Reason: "answered 410"})
	arrives(reportedEvent{
		Event: "circuit breaker opened", Receiver: "fails", Reason: `too many POSTs failed, the last one with: answered with status 500: ""`,
	})
	up.Store(true)
	arrives(reportedEvent{Event: "circuit breaker closed", Receiver: "fails", Reason: "a POST succeeded"})
	sum, n := 0, 0
	eventually(t, func() bool {
		sum, n = 0, 0
		for _, e := range s.events(operator) {
			if e.Event == "messages failed" {
				require.Equal(t, reportedEvent{Event: e.Event, Receiver: "refuses", Reason: "PERMANENT", Count: e.Count}, e)
				sum, n = sum+e.Count, n+1
			}
		}
		return sum >= failed
	}, "failed messages are not reported")
	require.Equal(t, failed, sum)
	require.LessOrEqual(t, n, failed/2)

	// docs/failures.md shows such an event.
	alerts, err := os.ReadFile("../docs/failures.md")
	require.NoError(t, err)
	sample := regexp.MustCompile(`\{"Event":"messages failed".*?\}`).Find(alerts)
	for _, r := range operator.list() {
		if strings.Contains(r.Body, "messages failed") {
			require.Equal(t, fieldsOf(t, r.Body), fieldsOf(t, string(sample)))
		}
	}
}

// fieldsOf is the names of the fields of an object.
func fieldsOf(t *testing.T, text string) []string {
	t.Helper()
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(text), &fields), text)
	return slices.Sorted(maps.Keys(fields))
}

// A URL that is down blocks neither messages nor a stop. Lost events are logged and counted.
func TestEventURLThatIsDown(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Relay.EventURL = "http://127.0.0.1:1/alerts"
	var log bytes.Buffer
	n, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	s := &site{t, n.URL()}
	gone := newPeer(t, func(int, seen) (int, string) { return http.StatusGone, "" })
	s.receiver("gone", gone.URL, nil)
	s.receiver("ci", newPeer(t, nil).URL, nil)
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "gone", "gone"))
	eventually(t, func() bool {
		return s.want(200, "GET", "/v1/receivers/gone", adminToken, nil)["state"].(object)["disabled"] == true
	}, "the receiver is not disabled")
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	s.awaitStatus("a", "1", "DONE")
	require.NoError(t, n.Stop(context.Background()))
	require.Contains(t, log.String(), "an event could not be sent to the operator's URL")
	metrics, err := n.workers.Metrics.Registry.Gather()
	require.NoError(t, err)
	for _, m := range metrics {
		if m.GetName() == "relay_events_lost_total" {
			require.InDelta(t, 1, m.GetMetric()[0].GetCounter().GetValue(), 0)
			return
		}
	}
	t.Fatal("lost events are not counted")
}

func TestEventURLIsChecked(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{"": "", "http://10.0.0.1/alerts": "", "alerts/here": "[relay] event-url: URL"} {
		c := DefaultConfig()
		c.Relay.EventURL = url
		if err := c.Validate(); want != "" {
			require.ErrorContains(t, err, want)
		} else {
			require.NoError(t, err)
		}
	}
}
