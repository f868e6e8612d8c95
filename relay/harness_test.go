package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

const adminToken = "admin-secret"

// waitLong bounds the wait for a condition, which is checked every waitStep.
const (
	waitLong = time.Minute
	waitStep = 5 * time.Millisecond
)

func eventually(t testing.TB, met func() bool, otherwise string) {
	t.Helper()
	within(t, waitLong, met, otherwise)
}

func within(t testing.TB, bound time.Duration, met func() bool, otherwise string) {
	t.Helper()
	require.True(t, metWithin(bound, met), otherwise)
}

func metWithin(bound time.Duration, met func() bool) bool {
	ended, tick := time.After(bound), time.NewTicker(waitStep)
	defer tick.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-ended:
			return false
		}
	}
	return true
}

func testConfig(dir string) *Config {
	cfg := DefaultConfig()
	cfg.HTTP.Listener, cfg.Admin.Token, cfg.NATS.StoreDir = "127.0.0.1:0", adminToken, dir
	cfg.Relay.Takeover = takeoverTime
	return cfg
}

func testLog() *slog.Logger {
	level := slog.LevelError
	if os.Getenv("RELAY_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// testJetStream waits for an answer as long as the tests wait for other conditions.
func testJetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(waitLong))
	require.NoError(t, err)
	return js
}

// site is a relay under test.
type site struct {
	t   testing.TB
	url string
}

func startSite(t testing.TB, change ...func(*Config)) *site {
	t.Helper()
	cfg := testConfig(t.TempDir())
	for _, f := range change {
		f(cfg)
	}
	n, err := Start(t.Context(), cfg, testLog())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Stop(context.Background())) })
	return &site{t, n.URL()}
}

type object = map[string]any

func (s *site) call(method, path, token string, body any) (int, []byte) {
	s.t.Helper()
	var sent []byte
	switch b := body.(type) {
	case nil:
	case string:
		sent = []byte(b)
	default:
		var err error
		sent, err = json.Marshal(b)
		require.NoError(s.t, err)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, bytes.NewReader(sent))
	require.NoError(s.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, loadDocument(s.t).Check(method, path, resp.StatusCode, resp.Header, data))
	if resp.StatusCode < 300 && !strings.Contains(string(data), `{"error":`) {
		require.NoError(s.t, loadDocument(s.t).CheckRequest(method, path, sent))
	}
	return resp.StatusCode, data
}

// want makes a request that must be answered with the status, and returns the JSON of the answer.
func (s *site) want(status int, method, path, token string, body any) object {
	s.t.Helper()
	code, data := s.call(method, path, token, body)
	require.Equal(s.t, status, code, "%s %s: %s", method, path, data)
	var o object
	if len(data) > 0 {
		require.NoError(s.t, json.Unmarshal(data, &o), "%s %s: %s", method, path, data)
	}
	return o
}

// put repeats a request that sets something, as its answer 503 asks a caller to do.
func (s *site) put(path string, body object) {
	s.t.Helper()
	var code int
	var data []byte
	eventually(s.t, func() bool {
		code, data = s.call("PUT", path, adminToken, body)
		return code != http.StatusServiceUnavailable
	}, "PUT "+path+": the relay is not available")
	require.Equal(s.t, http.StatusOK, code, "PUT %s: %s", path, data)
}

func (s *site) receiver(name, endpoint string, extra object) {
	s.t.Helper()
	body := object{"post_endpoint": endpoint, "retry_after": 0.05}
	for k, v := range extra {
		body[k] = v
	}
	s.put("/v1/receivers/"+name, body)
}

func (s *site) sender(name, callback string, sources ...string) {
	s.t.Helper()
	s.put("/v1/senders/"+name, object{"callback_endpoint": callback, "token": name + "-token", "sources": sources})
}

func message(source, id, receiver string) object {
	return object{"source_id": source, "message_id": id, "receiver": receiver, "payload": object{"n": id}}
}

func (s *site) status(source, id string) object {
	s.t.Helper()
	return s.want(200, "GET", "/v1/messages/"+source+"/"+id, adminToken, nil)
}

func (s *site) awaitStatus(source, id, status string) object {
	s.t.Helper()
	var o object
	became := metWithin(waitLong, func() bool { o = s.status(source, id); return o["status"] == status })
	require.True(s.t, became, "%s/%s is not %s: %v", source, id, status, o)
	return o
}

// seen is a request to a peer.
type seen struct {
	Method, Path string
	Header       http.Header
	Body         string
	At           time.Time
}

// peer is a receiver or a sender.
type peer struct {
	*httptest.Server
	mu   sync.Mutex
	got  []seen
	code func(n int, r seen) (int, string)
}

// newPeer starts a peer that answers the n-th request, from 1, with the result of code. With nil it answers 200 and {"ok":true}.
func newPeer(t testing.TB, code func(n int, r seen) (int, string)) *peer {
	p := &peer{code: code}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := time.Now()
		body, _ := io.ReadAll(r.Body)
		one := seen{r.Method, r.URL.EscapedPath(), r.Header, string(body), at}
		p.mu.Lock()
		p.got = append(p.got, one)
		n := len(p.got)
		p.mu.Unlock()
		status, answer := 200, `{"ok":true}`
		if p.code != nil {
			status, answer = p.code(n, one)
		}
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *peer) list() []seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]seen(nil), p.got...)
}

func (p *peer) count() int { return len(p.list()) }
