package broker

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// A process dies repeatedly while it purges the queued jobs of a consumer. The purge continues on its own to its end, and takes nothing but
// these: not a job of another consumer, not one that a worker has, not a dead one, and none of a later message. Another purge takes the rest.
func TestPurgeOfAProcessThatDies(t *testing.T) {
	for name, die := range map[string]func(m *mortal){
		"killed":        func(m *mortal) { m.kill(); m.start() },
		"without power": func(m *mortal) { m.fail(func() map[string]int64 { return readSizes(t, m.sizes) }) },
	} {
		t.Run(name, func(t *testing.T) {
			m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", sizes: filepath.Join(t.TempDir(), "sizes")}
			t.Cleanup(m.kill)
			m.start()
			for _, id := range []string{"purged", "other"} {
				putConsumer(t, m.node(), id, "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
			}
			broadcastMany(t, m.node(), "had", 4)
			had := claim(t, m.node(), "purged", "?limit=4&wait=5s&timeout=1h")
			require.Len(t, had, 4)
			for _, c := range had[:2] {
				code, body, _ := call(t, m.node(), "POST", "/channel/ch/consumer/purged/job/"+c.ID,
					map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"},
					`{"NextState":"DEAD","ClaimToken":"`+c.ClaimToken+`"}`)
				require.Equal(t, 202, code, body)
			}
			const rate = 40
			deaths := repetitions(10)
			queued := rate / 2 * (deaths + 1)
			ids := broadcastMany(t, m.node(), "queued", queued)
			location := startPurge(t, m.node(), fmt.Sprintf(`{"Rate":%d}`, rate))
			broadcast(t, m.node(), "later", "x", nil)
			for death := range deaths {
				waitUntil(t, func() bool {
					return jobCounts(t, m.node(), "purged")[domain.Queued] < queued+1-rate/2*death
				}, "the purge does not go on")
				require.Equal(t, "RUNNING", purgeOf(t, m.node(), location).State, "at the kill")
				code, body, _ := call(t, m.node(), "POST", purgePath, nil, "{}")
				require.Equal(t, 409, code, body)
				die(m)
			}
			waitUntil(t, func() bool { return purgeOf(t, m.node(), location).State == "DONE" }, "the purge does not end")
			end := purgeOf(t, m.node(), location)
			t.Logf("%d deaths: %d of %d counted as purged", deaths, end.Purged, end.Count)
			require.Equal(t, []int{queued, 0, 0}, []int{end.Count, end.Skipped, end.Failed})
			require.LessOrEqual(t, end.Purged, queued)

			require.Equal(t, map[domain.JobStatus]int{domain.Queued: 1, domain.Inflight: 2, domain.Dead: 2}, jobCounts(t, m.node(), "purged"))
			require.Equal(t, map[domain.JobStatus]int{domain.Queued: queued + 5}, jobCounts(t, m.node(), "other"))
			for _, id := range ids {
				require.Equal(t, map[string]string{"other": "QUEUED"}, jobStates(t, m.node(), id), id)
			}
			deliver(t, m.node(), "purged", had[2])

			again := startPurge(t, m.node(), "{}")
			waitUntil(t, func() bool { return purgeOf(t, m.node(), again).State == "DONE" }, "the next purge does not end")
			end = purgeOf(t, m.node(), again)
			require.Equal(t, []int{1, 1}, []int{end.Count, end.Purged})
			m.kill()
			m.start()
			require.Equal(t, map[domain.JobStatus]int{domain.Inflight: 1, domain.Dead: 2, domain.Delivered: 1}, jobCounts(t, m.node(), "purged"))
			require.Equal(t, map[domain.JobStatus]int{domain.Queued: queued + 5}, jobCounts(t, m.node(), "other"))
		})
	}
}

const purgePath = "/channel/ch/consumer/purged/purge"

func startPurge(t testing.TB, n *Node, body string) (location string) {
	t.Helper()
	code, text, h := call(t, n, "POST", purgePath, nil, body)
	require.Equal(t, 202, code, text)
	return h.Get("Location")
}

type purged struct {
	State                          string
	Count, Purged, Skipped, Failed int
}

func purgeOf(t testing.TB, n *Node, location string) (p purged) {
	t.Helper()
	code, body, _ := call(t, n, "GET", location, nil, "")
	require.Equal(t, 200, code, body)
	require.NoError(t, json.Unmarshal([]byte(body), &p))
	return p
}
