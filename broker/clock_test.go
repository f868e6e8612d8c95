package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/test/servertest"
)

// childClock is the file that a test binary of shiftedBinary reads.
const childClock = "BROKER_TEST_CLOCK"

// shiftedBinary builds this test binary with another package time. There the wall clock of the process is ahead by the seconds in a file, for
// the NATS server in the process too. The monotonic clock is unchanged, as on a machine whose clock is set.
func shiftedBinary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	require.NoError(t, err)
	const now = "\tsec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(string(text), now), "time.Now of this Go is another: adapt the test")
	shifted := strings.Replace(string(text), now, now+"\tsec += aheadBy.Load()\n", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "time.go"), []byte(shifted), 0o600))
	ahead, err := filepath.Abs("testdata/shiftedclock/ahead.go.txt")
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(source, "time.go"): filepath.Join(dir, "time.go"), filepath.Join(source, "ahead.go"): ahead,
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	binary := filepath.Join(dir, "broker.test")
	out, err := exec.Command("go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

// retryWait is how long a retry waits in the processes whose clock is set.
const retryWait = 2 * time.Second

// shifted starts a process whose clock is ahead.
func shifted(t *testing.T, binary, nats string, ahead time.Duration) *mortal {
	t.Helper()
	m := &mortal{
		t: t, dir: t.TempDir(), listen: "127.0.0.1:0", nats: nats, retry: retryWait.String(), binary: binary,
		clock: filepath.Join(t.TempDir(), "clock"),
	}
	setClock(t, m, ahead)
	t.Cleanup(m.kill)
	m.start()
	return m
}

// setClock sets the clock of a process ahead, or behind.
func setClock(t *testing.T, m *mortal, ahead time.Duration) {
	t.Helper()
	next := m.clock + ".next"
	require.NoError(t, os.WriteFile(next, []byte(strconv.Itoa(int(ahead/time.Second))), 0o600))
	require.NoError(t, os.Rename(next, m.clock))
}

// failsOnce answers the first callback of each message with 500, and one whose signature is older than five minutes, or younger, with 401.
func failsOnce(t *testing.T) (url string, calls *tally) {
	t.Helper()
	calls = &tally{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed, err := strconv.ParseInt(r.Header.Get(webhook.HeaderTimestamp), 10, 64)
		switch {
		case calls.add(r.Header.Get("X-Broker-Message-ID")) == 1:
			w.WriteHeader(http.StatusInternalServerError)
		case err == nil && time.Since(time.Unix(signed, 0)).Abs() > 5*time.Minute:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(receiver.Close)
	return receiver.URL, calls
}

// waiting broadcasts 30 messages, and returns when each waits for a retry of its callback, and a worker has claimed its other job. The claims
// were made after a time.
func waiting(t *testing.T, n *Node, calls *tally, prefix string) (ids []string, after time.Time) {
	t.Helper()
	ids, after = broadcastMany(t, n, prefix, 30), time.Now()
	got := 0
	waitUntil(t, func() bool {
		got += len(claim(t, n, "pull", "?limit=30"))
		missing, _ := calls.missing(ids)
		return missing == 0 && got >= len(ids)
	}, "the first callbacks are not made, or the jobs cannot be claimed")
	return ids, after
}

// done waits until each callback was repeated, and the worker's claims have ended, which takes some time.
func done(t *testing.T, n *Node, ids []string, after time.Time, takes time.Duration) {
	t.Helper()
	again := map[string]bool{}
	waitUntil(t, func() bool {
		for _, c := range claim(t, n, "pull", "?limit=30&timeout=3600") {
			require.Greater(t, time.Since(after), takes, "a claim has ended early")
			again[c.Message.MessageID] = true
			deliver(t, n, "pull", c)
		}
		return len(again) == len(ids)
	}, "claims do not end")
	for _, id := range ids {
		waitState(t, n, id, "push", "DELIVERED")
	}
}

// The clock of the machine is set while jobs wait for retries and claims. No retry is delayed, and no claim ends early or late. Nor are they
// late if the clock is set while the broker is stopped.
func TestClockOfTheMachineIsSet(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the standard library, and waits for claims")
	}
	binary := shiftedBinary(t)
	for _, step := range []time.Duration{-time.Hour, time.Hour, -10 * time.Minute} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			m := shifted(t, binary, "", 0)
			url, calls := failsOnce(t)
			putConsumer(t, m.node(), "push", url, nil)
			putConsumer(t, m.node(), "pull", url, pulled)
			ids, after := waiting(t, m.node(), calls, "running")
			setClock(t, m, step)
			done(t, m.node(), ids, after, killTimeout)
			ids, after = waiting(t, m.node(), calls, "stopped")
			m.kill()
			setClock(t, m, 2*step)
			m.start()
			done(t, m.node(), ids, after, 0)
		})
	}
}

// Three processes share a server, and their clocks differ by ten minutes, or are set by an hour. No claim ends early or late, whichever
// process has made it, and no retry is delayed.
func TestProcessesWithOtherClocks(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the standard library, and waits for claims")
	}
	binary := shiftedBinary(t)
	srv := servertest.RunServer(t)
	var processes []*mortal
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		processes = append(processes, shifted(t, binary, srv.URL(), ahead))
	}
	url, calls := failsOnce(t)
	putConsumer(t, processes[0].node(), "push", url, map[string][]string{"signingSecret": {webhook.NewSecret()}})
	const added = 10 * time.Second
	begun := map[string]time.Time{}
	for i, m := range processes {
		putConsumer(t, m.node(), fmt.Sprint("pull", i), url, pulled)
	}
	ids := broadcastMany(t, processes[1].node(), "m", 30)
	waitUntil(t, func() bool { missing, _ := calls.missing(ids); return missing == 0 }, "the first callbacks are not made")
	for i, m := range processes {
		consumer := fmt.Sprint("pull", i)
		begun[consumer] = time.Now()
		got := 0
		waitUntil(t, func() bool {
			got += len(claim(t, m.node(), consumer, "?limit=30&timeout=10"))
			return got >= len(ids)
		}, "the jobs cannot be claimed")
	}
	setClock(t, processes[1], time.Hour)
	setClock(t, processes[2], -time.Hour)
	for _, id := range ids {
		waitState(t, processes[0].node(), id, "push", "DELIVERED")
	}
	for _, m := range processes {
		_, body, header := call(t, m.node(), "GET", "/channel/ch/message/m0", nil, "")
		var message struct{ ReceivedAt time.Time }
		require.NoError(t, json.Unmarshal([]byte(body), &message))
		require.WithinDuration(t, time.Now(), message.ReceivedAt, 5*time.Minute)
		date, err := http.ParseTime(header.Get("Date"))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), date, time.Minute)
	}
	for consumer, begin := range begun {
		again := map[string]bool{}
		waitUntil(t, func() bool {
			for _, m := range processes {
				for _, c := range claim(t, m.node(), consumer, "?limit=30&timeout=3600") {
					require.Greater(t, time.Since(begin), killTimeout+added, "%s: a claim has ended early", consumer)
					again[c.Message.MessageID] = true
				}
			}
			return len(again) == len(ids)
		}, "claims do not end")
	}
}

var pulled = url.Values{"type": {"pull"}}
