package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/test/servertest"
)

// testWriter sends a log to the test until it ends: goroutines that outlive the test must not write to it.
type testWriter struct {
	mu sync.Mutex
	t  testing.TB
}

func (w *testWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

func testLogger(t testing.TB) *slog.Logger {
	w := &testWriter{t: t}
	t.Cleanup(func() { w.mu.Lock(); w.t = nil; w.mu.Unlock() })
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func testConfig(t testing.TB) *Config {
	t.Helper()
	cfg := DefaultConfig()
	cfg.HTTP.Listener = "127.0.0.1:0"
	cfg.NATS.StoreDir = t.TempDir()
	cfg.Dispatch.Backoff = domain.Backoff{20 * time.Millisecond}
	cfg.Dispatch.RationalDelay = 0
	cfg.Connection.Timeout = 2 * time.Second
	cfg.Seed = SeedData{
		Channels:  []SeedItem{{ID: "ch", Name: "Channel", Token: "ct"}},
		Producers: []SeedItem{{ID: "pr", Name: "Producer", Token: "pt"}},
	}
	return cfg
}

func startNode(t testing.TB, cfg *Config) *Node {
	t.Helper()
	n, err := Start(t.Context(), cfg, testLogger(t))
	require.NoError(t, err)
	t.Cleanup(func() { stopNode(t, n) })
	return n
}

// A store that was written without a name is found with the usual one: an empty [nats] name is the default.
func TestAnEmptyNameIsTheDefault(t *testing.T) {
	cfg := testConfig(t)
	cfg.NATS.Name = ""
	n := startNode(t, cfg)
	_, err := n.store.Directory.Channels.Find(t.Context(), "", "ch")
	require.NoError(t, err)
	stopNode(t, n)
	cfg.NATS.Name = "broker"
	cfg.Seed = SeedData{}
	_, err = startNode(t, cfg).store.Directory.Channels.Find(t.Context(), "", "ch")
	require.NoError(t, err)
}

// stopNode stops a node, which may be stopped already.
func stopNode(t testing.TB, n *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, n.Stop(ctx))
}

func call(t testing.TB, n *Node, method, path string, header map[string]string, body string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b), resp.Header
}

// putConsumer tries again after 503, as a client does: a stream may have no leader at present.
func putConsumer(t testing.TB, n *Node, id, callback string, more url.Values) {
	t.Helper()
	form := url.Values{"token": {"kt"}, "callbackUrl": {callback}}
	for k, v := range more {
		form[k] = v
	}
	header := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	code, body := 0, ""
	waitUntil(t, func() bool {
		code, body, _ = call(t, n, "PUT", "/channel/ch/consumer/"+id, header, form.Encode())
		return code != http.StatusServiceUnavailable
	}, "consumer "+id+" cannot be stored")
	require.Equal(t, 200, code, body)
}

func broadcast(t testing.TB, n *Node, id, body string, more map[string]string) {
	t.Helper()
	header := map[string]string{
		"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt",
		"X-Broker-Message-ID": id, "Content-Type": "text/plain",
	}
	for k, v := range more {
		header[k] = v
	}
	code, text, _ := call(t, n, "POST", "/channel/ch/broadcast", header, body)
	require.Equal(t, 201, code, text)
}

// jobStates returns the state of each job of a message.
func jobStates(t testing.TB, n *Node, id string) map[string]string {
	t.Helper()
	code, body, _ := call(t, n, "GET", "/channel/ch/message/"+id, nil, "")
	require.Equal(t, 200, code, body)
	var m struct {
		Jobs []struct{ ListenerName, Status string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &m))
	states := map[string]string{}
	for _, j := range m.Jobs {
		states[j.ListenerName] = j.Status
	}
	return states
}

func waitState(t testing.TB, n *Node, id, consumer, state string) {
	t.Helper()
	waitUntil(t, func() bool { return jobStates(t, n, id)[consumer] == state }, fmt.Sprintf("message %s for %s does not get %s", id, consumer, state))
}

func TestPushDelivery(t *testing.T) {
	var got atomic.Pointer[http.Request]
	var payload atomic.Pointer[string]
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s := string(b)
		payload.Store(&s)
		got.Store(r)
	}))
	defer receiver.Close()
	n := startNode(t, testConfig(t))
	secret := webhook.NewSecret()
	putConsumer(t, n, "k", receiver.URL+"/hook", url.Values{"signingSecret": {secret}, "headers": {`{"authorization":"Bearer abc","X-Two":"own"}`}})
	broadcast(t, n, "m1", "hello", map[string]string{
		"X-Broker-Message-Priority": "7", "X-Broker-Metadata-Headers": "X-One, X-Two,X-None, X-Content-Encoding",
		"X-Content-Encoding": "not the payload's", "X-One": "1", "X-Two": "2", "Content-Encoding": "br", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	waitState(t, n, "m1", "k", "DELIVERED")
	r := got.Load()
	require.Equal(t, "hello", *payload.Load())
	require.Equal(t, "POST", r.Method)
	require.Equal(t, "/hook", r.URL.Path)
	for name, want := range map[string]string{
		"Content-Type": "text/plain", "X-Broker-Message-Priority": "7", "X-Broker-Channel-ID": "ch", "X-Broker-Consumer-ID": "k",
		"X-Broker-Message-ID": "m1", "X-Broker-Consumer-Token": "kt", "User-Agent": "Webhook Message Broker",
		"X-One": "1", "X-Two": "own", "X-Broker-Metadata-Headers": "Content-Encoding,X-Content-Encoding,X-One,X-Two", "Authorization": "Bearer abc",
		"Content-Encoding": "br", "X-Broker-Attempt": "1",
	} {
		require.Equal(t, want, r.Header.Get(name), name)
	}
	require.Len(t, r.Header.Get("X-Request-ID"), 20)
	require.Contains(t, r.Header.Get("traceparent"), "0af7651916cd43dd8448eb211c80319c")
	wh, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	require.NoError(t, wh.Verify([]byte("hello"), r.Header))
}

func TestPushRetriesThenDeadThenRequeued(t *testing.T) {
	var calls atomic.Int32
	var healthy atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, fmt.Sprint(calls.Add(1)), r.Header.Get("X-Broker-Attempt"))
		if !healthy.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.MaxRetry = 2
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, nil)
	broadcast(t, n, "m", "x", nil)
	waitState(t, n, "m", "k", "DEAD")
	require.EqualValues(t, 3, calls.Load(), "one attempt and two retries")

	healthy.Store(true)
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/k/dlq", map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		"requeue=kt")
	require.Equal(t, 202, code, body)
	waitState(t, n, "m", "k", "DELIVERED")
	require.EqualValues(t, 4, calls.Load())
}

// A retry survives a restart, without a new message that wakes the dispatching.
func TestRetriesSurviveARestart(t *testing.T) {
	var healthy atomic.Bool
	var calls atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if !healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.Backoff = domain.Backoff{1500 * time.Millisecond}
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, nil)
	broadcast(t, n, "m", "x", nil)
	require.Eventually(t, func() bool { return calls.Load() == 1 }, 10*time.Second, time.Millisecond)
	stopNode(t, n)
	before := calls.Load() // a slow stop does not prevent the retry
	healthy.Store(true)
	again := startNode(t, cfg)
	waitState(t, again, "m", "k", "DELIVERED")
	require.Equal(t, before+1, calls.Load())
}

// A consumer that hangs occupies only its own workers.
func TestHangingCallbackHoldsNobodyElse(t *testing.T) {
	release := make(chan struct{})
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer hang.Close()
	defer close(release)
	ok := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer ok.Close()
	n := startNode(t, testConfig(t))
	putConsumer(t, n, "hang", hang.URL, url.Values{"concurrency": {"1"}})
	putConsumer(t, n, "ok", ok.URL, nil)
	for _, id := range []string{"a", "b", "c"} {
		broadcast(t, n, id, "x", nil)
		waitState(t, n, id, "ok", "DELIVERED")
	}
	require.NotEqual(t, "DELIVERED", jobStates(t, n, "a")["hang"])
}

// While the only worker is busy, waiting jobs are ordered by priority.
func TestHigherPriorityGoesFirst(t *testing.T) {
	var mu sync.Mutex
	var order []string
	first, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		order = append(order, r.Header.Get("X-Broker-Message-ID"))
		mu.Unlock()
		once.Do(func() { close(first); <-release })
	}))
	defer receiver.Close()
	n := startNode(t, testConfig(t))
	putConsumer(t, n, "k", receiver.URL, url.Values{"concurrency": {"1"}})
	broadcast(t, n, "blocker", "x", nil)
	<-first
	broadcast(t, n, "low", "x", nil)
	broadcast(t, n, "mid", "x", map[string]string{"X-Broker-Message-Priority": "5"})
	broadcast(t, n, "high", "x", map[string]string{"X-Broker-Message-Priority": "9"})
	close(release)
	waitState(t, n, "low", "k", "DELIVERED")
	require.Equal(t, []string{"blocker", "high", "mid", "low"}, order)
}

func mustConsumer(t testing.TB, n *Node, id string) domain.Consumer {
	t.Helper()
	c, err := n.store.Directory.Consumers.Find(t.Context(), "ch", id)
	require.NoError(t, err)
	return c
}

func TestClaimExpiresAndDies(t *testing.T) {
	cfg := testConfig(t)
	cfg.Connection.Timeout = 50 * time.Millisecond
	cfg.Dispatch.MaxRetry = 1
	n := startNode(t, cfg)
	putConsumer(t, n, "k", "http://127.0.0.1/", url.Values{"type": {"pull"}})
	broadcast(t, n, "m", "x", nil)
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
	claim := func() (jobs []struct{ ID, ClaimToken string }) {
		code, body, _ := call(t, n, "POST", "/channel/ch/consumer/k/claim?wait=10s", tokens, "")
		require.Equal(t, 200, code, body)
		var result struct {
			Result []struct{ ID, ClaimToken string }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &result))
		return result.Result
	}
	first := claim()
	require.Len(t, first, 1)
	second := claim() // waits for the end of the first claim
	require.Len(t, second, 1)
	require.Equal(t, first[0].ID, second[0].ID)
	require.NotEqual(t, first[0].ClaimToken, second[0].ClaimToken)
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/k/job/"+first[0].ID, tokens,
		`{"NextState":"DELIVERED","ClaimToken":"`+first[0].ClaimToken+`"}`)
	require.Equal(t, 409, code, body)
	waitState(t, n, "m", "k", "DEAD")
}

func TestPruneExportsFirst(t *testing.T) {
	cfg := testConfig(t)
	cfg.Prune.ExportPath, cfg.Prune.Retention = t.TempDir(), time.Hour
	n := startNode(t, cfg)
	broadcast(t, n, "m", "\xff\x00", nil)
	pruned, err := n.broker.Pruner.PruneFinished(t.Context(), time.Now())
	require.NoError(t, err)
	require.Zero(t, pruned)
	pruned, err = n.broker.Pruner.PruneFinished(t.Context(), time.Now().Add(2*time.Hour))
	require.NoError(t, err)
	require.Equal(t, 1, pruned)
	code, _, _ := call(t, n, "GET", "/channel/ch/message/m", nil, "")
	require.Equal(t, 404, code)
	line := readOnlyFile(t, cfg.Prune.ExportPath)
	var e struct {
		ID      string
		Payload []byte
	}
	require.NoError(t, json.Unmarshal(bytes.TrimSpace(line), &e))
	require.Equal(t, "m", e.ID)
	require.Equal(t, []byte("\xff\x00"), e.Payload)
}

// An export folder that cannot be made is reported at the start, not after the retention.
func TestExportPathIsMadeAtTheStart(t *testing.T) {
	cfg := testConfig(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	cfg.Prune.ExportPath = filepath.Join(file, "x")
	var log servertest.Log
	n, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	waitUntil(t, func() bool { return strings.Contains(log.String(), "[prune] export-path: mkdir "+file) }, "the log does not name the folder")
	stopNode(t, n)
	cfg.Prune.ExportPath = filepath.Join(t.TempDir(), "new", "folder")
	startNode(t, cfg)
	waitUntil(t, func() bool {
		entries, err := os.ReadDir(cfg.Prune.ExportPath)
		return err == nil && len(entries) == 0
	}, "the folder is not made")
}

func TestOneProcessPerStore(t *testing.T) {
	cfg := testConfig(t)
	startNode(t, cfg)
	_, err := Start(t.Context(), cfg, testLogger(t))
	require.ErrorContains(t, err, "another process uses the store in "+cfg.NATS.StoreDir+": stop that, or name another folder")
}

// Every call of Stop returns when the node has stopped, with the result of the first.
func TestStopMayBeCalledAgain(t *testing.T) {
	n, err := Start(t.Context(), testConfig(t), testLogger(t))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			assert.NoError(t, n.Stop(ctx))
			assert.True(t, n.nc.IsClosed())
		})
	}
	calls.Wait()
	over, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, n.Stop(over))
}
