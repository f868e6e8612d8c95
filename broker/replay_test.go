package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

type replayed struct {
	ID, State                string
	Count, Replayed, Skipped int
}

func replayOf(t testing.TB, n *Node, location string) (r replayed) {
	t.Helper()
	code, body, _ := call(t, n, "GET", location, nil, "")
	require.Equal(t, 200, code, body)
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	return r
}

func startReplay(t testing.TB, n *Node, body string) (location string) {
	t.Helper()
	code, text, h := call(t, n, "POST", "/channel/ch/consumer/k/replay", nil, body)
	require.Equal(t, 202, code, text)
	return h.Get("Location")
}

// replayReceiver accepts callbacks and records which were replays.
type replayReceiver struct {
	*httptest.Server
	mu      sync.Mutex
	first   map[string]int            // callbacks that were not replays, by message
	replays map[string]map[string]int // by replay, then message
	fail    bool
}

func newReplayReceiver(t testing.TB) *replayReceiver {
	r := &replayReceiver{first: map[string]int{}, replays: map[string]map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		id, replay := req.Header.Get("X-Broker-Message-ID"), req.Header.Get("X-Broker-Replay")
		if r.fail {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if replay == "" {
			r.first[id]++
			return
		}
		if r.replays[replay] == nil {
			r.replays[replay] = map[string]int{}
		}
		r.replays[replay][id]++
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *replayReceiver) of(replay string) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := map[string]int{}
	for id, n := range r.replays[replay] {
		got[id] = n
	}
	return got
}

// Callbacks of a replay have the message's ID and name the replay. The history of attempts continues. A restart during the replay
// neither skips nor repeats jobs.
func TestReplaySurvivesARestart(t *testing.T) {
	receiver := newReplayReceiver(t)
	cfg := testConfig(t)
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, nil)
	const messages = 30
	for i := range messages {
		broadcast(t, n, fmt.Sprint(i), "x", nil)
	}
	for i := range messages {
		waitState(t, n, fmt.Sprint(i), "k", "DELIVERED")
	}
	location := startReplay(t, n, `{"Status":"DELIVERED","Rate":10}`)
	id := replayOf(t, n, location).ID
	require.Eventually(t, func() bool { return len(receiver.of(id)) >= 3 }, waitLong, waitStep)
	stopNode(t, n)
	require.Less(t, len(receiver.of(id)), messages, "the stop is in the middle")

	again := startNode(t, cfg)
	waitUntil(t, func() bool { return replayOf(t, again, location).State == "DONE" }, "the replay does not end")
	require.Equal(t, replayed{ID: id, State: "DONE", Count: messages, Replayed: messages}, replayOf(t, again, location))
	for i := range messages {
		waitState(t, again, fmt.Sprint(i), "k", "DELIVERED")
	}
	want := map[string]int{}
	for i := range messages {
		want[fmt.Sprint(i)] = 1
	}
	require.Equal(t, want, receiver.of(id))
	require.Equal(t, want, receiver.first)
	list, count := attemptsAt(t, again, "0", "k")
	require.Equal(t, 2, count)
	require.Equal(t, []int{2, 1}, numbers(list))
	require.Equal(t, 200, list[1].StatusCode, "what the record had of the first is in the history now")

	receiver.mu.Lock()
	receiver.fail = true
	receiver.mu.Unlock()
	broadcast(t, again, "dead", "x", nil)
	waitState(t, again, "dead", "k", "DEAD")
	receiver.mu.Lock()
	receiver.fail = false
	receiver.mu.Unlock()
	location = startReplay(t, again, `{"Status":"DEAD"}`)
	waitState(t, again, "dead", "k", "DELIVERED")
	require.Equal(t, map[string]int{"dead": 1}, receiver.of(replayOf(t, again, location).ID))
}

// Another process continues the replay of a killed one, and no job is replayed twice.
func TestReplayIsTakenOver(t *testing.T) {
	receiver := newReplayReceiver(t)
	srv := servertest.RunServer(t)
	victim := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", nats: srv.URL()}
	t.Cleanup(victim.kill)
	victim.start()
	cfg := testConfig(t)
	cfg.NATS.URL, cfg.NATS.StoreDir = srv.URL(), ""
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, nil)
	const messages = 30
	for i := range messages {
		broadcast(t, n, fmt.Sprint(i), "x", nil)
	}
	for i := range messages {
		waitState(t, n, fmt.Sprint(i), "k", "DELIVERED")
	}
	other := &Node{addr: victim.listen}
	require.Eventually(t, func() bool {
		code, body, _ := call(t, other, "POST", "/channel/ch/consumer/k/replay", nil, `{"DryRun":true}`)
		return code == 200 && body == fmt.Sprintf("{\"Count\":%d}\n", messages)
	}, waitLong, waitStep)
	location := startReplay(t, other, `{"Rate":5}`)
	id := replayOf(t, n, location).ID
	require.Eventually(t, func() bool { return len(receiver.of(id)) >= 2 }, waitLong, waitStep)
	victim.kill()
	waitUntil(t, func() bool { return replayOf(t, n, location).State == "DONE" }, "the replay is not taken over")
	require.Eventually(t, func() bool { return len(receiver.of(id)) == messages }, waitLongest, waitStep)
	for i, times := range receiver.of(id) {
		// A callback that was in progress during the kill may be repeated.
		require.LessOrEqual(t, times, 2, i)
	}
}

// A process dies repeatedly during a replay: it is killed, or the power fails. The replay continues on its own to its end and
// queues each job once: each has one more attempt, even if callbacks are repeated because of a kill.
func TestReplayOfAProcessThatDies(t *testing.T) {
	for name, die := range map[string]func(m *mortal){
		"killed":        func(m *mortal) { m.kill(); m.start() },
		"without power": func(m *mortal) { m.fail(func() map[string]int64 { return readSizes(t, m.sizes) }) },
	} {
		t.Run(name, func(t *testing.T) {
			receiver := newReplayReceiver(t)
			m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", sizes: filepath.Join(t.TempDir(), "sizes")}
			t.Cleanup(m.kill)
			m.start()
			putConsumer(t, m.node(), "k", receiver.URL, nil)
			deaths := repetitions(10)
			messages := 20 * (deaths + 1)
			for i := range messages {
				broadcast(t, m.node(), fmt.Sprint(i), "x", nil)
			}
			waitUntil(t, func() bool { return deliveredJobs(t, m.node(), "k") == messages }, "messages are not delivered")
			location := startReplay(t, m.node(), `{"Rate":40}`)
			id := replayOf(t, m.node(), location).ID
			for death := range deaths {
				waitUntil(t, func() bool { return len(receiver.of(id)) > 20*death }, "the replay does not go on")
				require.Equal(t, "RUNNING", replayOf(t, m.node(), location).State, "at the kill")
				die(m)
			}
			waitUntil(t, func() bool {
				return replayOf(t, m.node(), location).State == "DONE" && deliveredJobs(t, m.node(), "k") == messages
			}, "the replay does not end")
			end := replayOf(t, m.node(), location)
			require.Equal(t, messages, end.Count)
			require.Zero(t, end.Skipped)
			calls, missing := 0, 0
			for i := range messages {
				list, count := attemptsAt(t, m.node(), fmt.Sprint(i), "k")
				require.Equal(t, 2, count, "message %d", i)
				require.Equal(t, 2, list[0].Attempt)
				missing += count - len(list)
				calls += receiver.of(id)[fmt.Sprint(i)]
			}
			t.Logf("%d deaths: %d callbacks for %d jobs, %d counted, %d attempts missing in the histories", deaths, calls, messages, end.Replayed, missing)
			require.GreaterOrEqual(t, calls, messages)
			require.LessOrEqual(t, calls, messages+deaths*killConcurrency)
			if name == "killed" {
				require.Zero(t, missing)
			}
		})
	}
}
