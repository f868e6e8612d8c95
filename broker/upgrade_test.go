package broker

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/test/servertest"
)

// earlierStores are stores that the builds of these commits have written with writeStore. They have jobs in each state, of push and pull
// consumers, and all other kinds of data.
var earlierStores = []string{"testdata/store-7f96690.zip", "testdata/store-74250ac.zip"}

// upgradeConfig prunes nothing, because the messages of the store get older with each day.
func upgradeConfig(t *testing.T, dir string) *Config {
	cfg := testConfig(t)
	cfg.NATS.StoreDir, cfg.Prune.Retention = dir, 0
	return cfg
}

var (
	asForm   = map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	asWorker = map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
)

// TestWriteStore writes the archive, in the checkout of a build, if JETPULL_WRITE_STORE names it.
func TestWriteStore(t *testing.T) {
	servertest.WriteStore(t, func(dir string) { writeStore(t, dir) })
}

// writeStore runs a broker twice. In the first run a job has no retries, so that it can be dead and removed.
func writeStore(t *testing.T, dir string) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Broker-Message-Id") != "push-delivered" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer receiver.Close()
	cfg := upgradeConfig(t, dir)
	cfg.Dispatch.MaxRetry, cfg.Scheduler.MinDelay, cfg.Dispatch.Backoff = 0, 0, domain.Backoff{time.Minute}
	n, err := Start(t.Context(), cfg, testLogger(t))
	require.NoError(t, err)
	putConsumer(t, n, "pushed", receiver.URL, url.Values{"eventTypes": {"push.*"}})
	putConsumer(t, n, "paused", receiver.URL, url.Values{"eventTypes": {"paused"}, "concurrency": {"3"}, "rateLimit": {"1000"}})
	putConsumer(t, n, "pulled", receiver.URL, url.Values{"eventTypes": {"pull.*"}, "type": {"pull"}})
	expect := func(status int, method, path string, header map[string]string, body string) string {
		t.Helper()
		code, text, _ := call(t, n, method, path, header, body)
		require.Equal(t, status, code, text)
		return text
	}
	const channel, pulled = "/channel/ch", "/channel/ch/consumer/pulled"
	expect(200, "PUT", channel+"/access/reader", asForm, "role=read&token=rt")
	expect(200, "POST", channel+"/consumer/paused/pause", nil, "")
	send := func(id, eventType string, more map[string]string) {
		header := map[string]string{"X-Broker-Event-Type": eventType}
		for name, value := range more {
			header[name] = value
		}
		broadcast(t, n, id, "payload of "+id, header)
	}
	settle := func(id, state string) string {
		send(id, "pull.a", nil)
		var claimed struct{ Result []struct{ ID string } }
		require.NoError(t, json.Unmarshal([]byte(expect(200, "POST", pulled+"/claim?limit=1&timeout=30", asWorker, "")), &claimed))
		require.Len(t, claimed.Result, 1)
		if state != "INFLIGHT" {
			expect(202, "POST", pulled+"/job/"+claimed.Result[0].ID, asWorker, `{"NextState":"`+state+`"}`)
		}
		return claimed.Result[0].ID
	}
	send("paused-queued", "paused", nil)
	send("push-delivered", "push.a", nil)
	waitState(t, n, "push-delivered", "pushed", "DELIVERED")
	send("push-dead", "push.a", map[string]string{"X-Broker-Metadata-Headers": "X-Kept", "X-Kept": "value"})
	waitState(t, n, "push-dead", "pushed", "DEAD")
	settle("pull-delivered", "DELIVERED")
	settle("pull-dead", "DEAD")
	expect(204, "DELETE", pulled+"/job/"+settle("pull-removed", "DEAD"), asWorker, "")
	stopNode(t, n)

	cfg.Dispatch.MaxRetry = 5
	n = startNode(t, cfg)
	send("push-retry", "push.b", nil)
	require.Eventually(t, func() bool {
		_, body, _ := call(t, n, "GET", channel+"/message/push-retry", nil, "")
		return strings.Contains(body, `"Attempts":1`)
	}, 10*time.Second, 5*time.Millisecond)
	send("pull-scheduled", "pull.b", map[string]string{"X-Broker-Scheduled-For": time.Now().Add(time.Second).Format(time.RFC3339Nano)})
	send("pull-later", "pull.b", map[string]string{"X-Broker-Scheduled-For": "2199-01-01T00:00:00Z"})
	require.Eventually(t, func() bool {
		code, _, _ := call(t, n, "GET", channel+"/message/pull-scheduled", nil, "")
		return code == 200
	},
		10*time.Second, 5*time.Millisecond)
	expect(202, "POST", pulled+"/replay", nil, `{"Status":"DELIVERED"}`)
	waitState(t, n, "pull-delivered", "pulled", "QUEUED")
	settle("pull-inflight", "INFLIGHT")
	send("pull-queued", "pull.c", map[string]string{"X-Broker-Message-Priority": "7"})
	stopNode(t, n)
}

// A broker starts on the store of an earlier build, and completes its jobs: settled ones stay so, and others are delivered once.
func TestStoreOfAnEarlierBuild(t *testing.T) {
	for _, path := range earlierStores {
		t.Run(filepath.Base(path), func(t *testing.T) { startOn(t, path) })
	}
}

func startOn(t *testing.T, path string) {
	dir := t.TempDir()
	servertest.ExtractStore(t, path, dir)
	var mu sync.Mutex
	received := map[string]string{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		received[r.Header.Get("X-Broker-Message-Id")] += string(body)
	}))
	defer receiver.Close()
	n := startNode(t, upgradeConfig(t, dir))
	expect := func(status int, method, path string, header map[string]string, body string) (string, http.Header) {
		t.Helper()
		code, text, answer := call(t, n, method, path, header, body)
		require.Equal(t, status, code, text)
		return text, answer
	}
	const channel = "/channel/ch"
	require.Equal(t, map[string]string{"pushed": "DEAD"}, jobStates(t, n, "push-dead"))
	require.Equal(t, map[string]string{"pushed": "DELIVERED"}, jobStates(t, n, "push-delivered"))
	require.Equal(t, map[string]string{"pulled": "DEAD"}, jobStates(t, n, "pull-dead"))
	waitState(t, n, "pull-delivered", "pulled", "QUEUED") // it was replayed, and the time of its claim is over
	require.Equal(t, map[string]string{"paused": "QUEUED"}, jobStates(t, n, "paused-queued"))
	require.Empty(t, jobStates(t, n, "pull-removed"))
	body, _ := expect(200, "GET", channel+"/message/push-dead", nil, "")
	require.Contains(t, body, `"X-Kept":"value"`)
	require.Contains(t, body, `"Payload":"payload of push-dead"`)
	body, _ = expect(200, "GET", channel+"/access", nil, "")
	require.Contains(t, body, `"ID":"reader"`)
	body, _ = expect(200, "GET", channel+"/scheduled-message/pull-later", nil, "")
	require.Contains(t, body, `"status":"SCHEDULED"`)

	for id, eventTypes := range map[string]string{"pushed": "push.*", "paused": "paused"} {
		_, answer := expect(200, "GET", channel+"/consumer/"+id, nil, "")
		header := map[string]string{"Content-Type": asForm["Content-Type"], "If-Unmodified-Since": answer.Get("Last-Modified")}
		form := url.Values{"token": {"kt"}, "callbackUrl": {receiver.URL}, "eventTypes": {eventTypes}}
		expect(200, "PUT", channel+"/consumer/"+id, header, form.Encode())
	}
	expect(200, "POST", channel+"/consumer/paused/resume", nil, "")
	for _, id := range []string{"pushed", "pulled"} {
		expect(202, "POST", channel+"/consumer/"+id+"/dlq", asForm, "requeue=kt")
	}
	pulled := map[string]bool{}
	for deadline := time.Now().Add(waitLong); len(pulled) < 5 && time.Now().Before(deadline); {
		var claimed struct {
			Result []struct {
				ID      string
				Message struct{ MessageID, Payload string }
			}
		}
		body, _ := expect(200, "POST", channel+"/consumer/pulled/claim?wait=1s", asWorker, "")
		require.NoError(t, json.Unmarshal([]byte(body), &claimed))
		for _, job := range claimed.Result {
			require.False(t, pulled[job.Message.MessageID], job.Message.MessageID)
			pulled[job.Message.MessageID] = true
			require.Equal(t, "payload of "+job.Message.MessageID, job.Message.Payload)
			expect(202, "POST", channel+"/consumer/pulled/job/"+job.ID, asWorker, `{"NextState":"DELIVERED"}`)
		}
	}
	require.Equal(t, map[string]bool{"pull-dead": true, "pull-delivered": true, "pull-inflight": true, "pull-queued": true, "pull-scheduled": true},
		pulled)
	delivered := map[string]string{
		"push-dead": "pushed", "push-delivered": "pushed", "push-retry": "pushed", "paused-queued": "paused",
		"pull-dead": "pulled", "pull-delivered": "pulled", "pull-inflight": "pulled", "pull-queued": "pulled", "pull-scheduled": "pulled",
	}
	for id, consumer := range delivered {
		waitState(t, n, id, consumer, "DELIVERED")
	}
	mu.Lock()
	require.Equal(t, map[string]string{
		"push-dead": "payload of push-dead", "push-retry": "payload of push-retry", "paused-queued": "payload of paused-queued",
	}, received)
	mu.Unlock()
	expect(204, "DELETE", channel+"/scheduled-message/pull-later", map[string]string{
		"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt",
	}, "")

	stopNode(t, n)
	n = startNode(t, upgradeConfig(t, dir))
	for id, consumer := range delivered {
		require.Equal(t, map[string]string{consumer: "DELIVERED"}, jobStates(t, n, id))
	}
}
