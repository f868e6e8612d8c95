package relay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waiting returns the reason why a message waits, and until when. A zero time means that the end is not known.
func (s *site) waiting(source, id string) (reason string, until time.Time) {
	s.t.Helper()
	w, _ := s.status(source, id)["waiting"].(object)
	if text, ok := w["until"].(string); ok {
		var err error
		until, err = time.Parse(time.RFC3339Nano, text)
		require.NoError(s.t, err)
	}
	reason, _ = w["for"].(string)
	return reason, until
}

// A message that has arrived and is not sent has a reason, and an end of the wait if it is known.
func TestStatusSaysWhatAMessageWaitsFor(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	asks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(asks.Close)
	answers := func(code int) string { return newPeer(t, func(int, seen) (int, string) { return code, "" }).URL }
	for name, c := range map[string]object{
		"pause":    {"post_endpoint": answers(200), "paused": true},
		"disabled": {"post_endpoint": answers(410)},
		"hold":     {"post_endpoint": asks.URL, "max_retries": 1},
		"breaker":  {"post_endpoint": answers(500), "retry_after": 9, "max_retries": 50},
		"rate":     {"post_endpoint": answers(200), "rate_limit": 1, "window_size": 600},
		"order":    {"post_endpoint": answers(500), "retry_after": 600, "order": "source"},
		"retry":    {"post_endpoint": answers(500), "retry_after": 600},
	} {
		s.want(200, "PUT", "/v1/receivers/"+name, adminToken, c)
		first := 1
		if name == "breaker" {
			first = 8 // more than failures that open it
		}
		for i := range first {
			s.want(202, "POST", "/v1/messages", adminToken, message("s", fmt.Sprint(name, i), name))
		}
		if name != "pause" {
			eventually(t, func() bool {
				o := s.status("s", fmt.Sprint(name, first-1))
				return len(o["attempts"].([]any)) > 0 || name == "breaker"
			}, name+": there is no attempt")
		}
		id := fmt.Sprint(name, 0)
		if name != "retry" {
			id = name + "-last"
			s.want(202, "POST", "/v1/messages", adminToken, message("s", id, name))
		}
		begin := time.Now()
		var reason string
		var until time.Time
		eventually(t, func() bool { reason, until = s.waiting("s", id); return reason == name }, name+": it says "+reason)
		switch name {
		case "hold", "rate", "retry":
			require.WithinRange(t, until, begin.Add(4*time.Minute), begin.Add(11*time.Minute), name)
		case "breaker":
			require.WithinRange(t, until, begin.Add(-time.Minute), time.Now().Add(11*time.Second), name)
		default:
			require.Zero(t, until, name)
		}
		if name != "order" && name != "retry" {
			state := s.want(200, "GET", "/v1/receivers/"+name, adminToken, nil)["state"].(object)
			require.Equal(t, name, state["waiting"].(object)["for"])
		}
	}
	s.receiver("works", answers(200), nil)
	s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("s", "done", "works"))
	require.NotContains(t, s.status("s", "done"), "waiting")
}
