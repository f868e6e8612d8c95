package broker

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// moody is a receiver that fails the first callback of some messages with an error that names the message, and accepts all
// others.
type moody struct{ calls tally }

func failsFirst(id string) bool { return strings.ContainsAny(id[len(id)-1:], "147") }

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Broker-Message-ID")
	if m.calls.add(id) == 1 && failsFirst(id) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, id)
	}
}

// failing returns the messages whose first callback moody fails.
func failing(ids []string) (some []string) {
	for _, id := range ids {
		if failsFirst(id) {
			some = append(some, id)
		}
	}
	return some
}

// histories are the failures that a broker has shown, by message. It must show them from then on.
type histories map[string]attempt

// check reads the history of each message's job for a push consumer. A history has at most one failure, that of moody. The
// failure is remembered if it began before the given time. check counts failures, and the attempts that are missing.
func (h histories) check(t *testing.T, n *Node, consumer string, messages []string, before time.Time) (failures, missing int) {
	t.Helper()
	for _, id := range messages {
		list, _ := attemptsAt(t, n, id, consumer)
		for i, a := range list {
			if i == 0 {
				missing += a.Attempt
			}
			missing--
			if a.ResponseBody == "" {
				continue // a success, or a failure whose answer was not recorded
			}
			failures++
			require.Equal(t, []any{1, 418, id}, []any{a.Attempt, a.StatusCode, a.ResponseBody})
			if was, ok := h[id]; ok {
				require.Equal(t, was, a)
			} else if a.StartedAt.Before(before) {
				h[id] = a
			}
		}
		if was, ok := h[id]; ok {
			require.Contains(t, list, was, "an attempt at message %s was shown and is gone", id)
		}
	}
	return failures, missing
}
