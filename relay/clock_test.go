package relay

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/relay/internal/work"
)

// The clock of a process is set an hour ahead and back while messages are in progress. No process is killed, so nothing is sent
// twice, each message ends, and no window has more than its limit.
func TestClockIsSetByAnHour(t *testing.T) {
	var ahead atomic.Int64
	work.SetClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	t.Cleanup(func() { work.SetClock(time.Now) })
	h := newWitness(t, everyKind)
	h.timeout = patient
	s := startSite(t)
	h.configure(s)
	process := []*mortal{{t: t, listen: strings.TrimPrefix(s.url, "http://")}}
	n := contractMessages() / 3
	for round, step := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		seen := h.accepts()
		var senders sync.WaitGroup
		senders.Go(func() { feed(h, process, round, n) })
		eventually(t, func() bool { return h.accepts()-seen > len(everyKind)*n/2 }, "too few are accepted")
		ahead.Store(int64(step))
		senders.Wait()
	}
	h.check(s, 0)
}

// A time to live depends on the clock of the server. A process whose clock is an hour ahead, or behind, ends no message too early
// or too late: one that is sent at once, one that waits for its turn, one whose response is pending, and one that is not sent.
func TestTimeToLiveWithAnotherClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			work.SetClock(func() time.Time { return time.Now().Add(ahead) })
			t.Cleanup(func() { work.SetClock(time.Now) })
			s := startSite(t)
			r := newPeer(t, nil)
			polls := 0
			later := newPeer(t, func(_ int, got seen) (int, string) {
				if got.Method == http.MethodPost {
					return 202, ""
				}
				if polls++; polls < 3 {
					return 202, ""
				}
				return 200, "1"
			})
			s.receiver("ci", r.URL, object{"ttl": 60})
			s.receiver("limited", r.URL, object{"ttl": 60, "rate_limit": 1, "window_size": 1})
			s.receiver("later", later.URL, object{"ttl": 60, "status_endpoint": later.URL + "/{source_id}/{message_id}"})
			s.receiver("paused", r.URL, object{"ttl": 1, "paused": true})
			for i, name := range []string{"ci", "limited", "limited", "later", "paused"} {
				s.want(202, "POST", "/v1/messages", adminToken, message(name, fmt.Sprint(i), name))
			}
			s.awaitStatus("paused", "4", "FAILED")
			for i, name := range []string{"ci", "limited", "limited", "later"} {
				s.awaitStatus(name, fmt.Sprint(i), "DONE")
			}
		})
	}
}

// Deadlines and redrives depend on the clock of the server as well. A process whose clock is an hour ahead does not give up or
// redrive messages that are due in 20 minutes.
func TestDeadlinesWithAnotherClock(t *testing.T) {
	work.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	t.Cleanup(func() { work.SetClock(time.Now) })
	const soon = 20 * time.Minute
	s := startSite(t, func(c *Config) {
		c.Relay.CallbackDeadline, c.Relay.PollDeadline, c.Relay.AutoRedrive = soon, soon, []time.Duration{soon}
	})
	var calls atomic.Int64
	sender := newPeer(t, func(int, seen) (int, string) {
		if calls.Add(1) < 3 {
			return 500, ""
		}
		return 200, ""
	})
	s.sender("git", sender.URL, "1")
	var polls, posts atomic.Int64
	later := newPeer(t, func(_ int, got seen) (int, string) {
		if got.Method == http.MethodPost || polls.Add(1) < 3 {
			return 202, ""
		}
		return 200, "1"
	})
	broken := newPeer(t, func(int, seen) (int, string) { posts.Add(1); return 500, "" })
	s.receiver("later", later.URL, object{"status_endpoint": later.URL + "/{source_id}/{message_id}"})
	s.receiver("broken", broken.URL, object{"max_retries": 0})
	s.want(202, "POST", "/v1/messages", adminToken, message("1", "broken", "broken"))
	s.awaitStatus("1", "broken", "FAILED")
	s.want(202, "POST", "/v1/messages", adminToken, message("1", "later", "later"))
	s.awaitStatus("1", "later", "DONE")
	require.EqualValues(t, 1, posts.Load())
	eventually(t, func() bool { return calls.Load() > 3 }, "the callback of the later answer is not made")
}
