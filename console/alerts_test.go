package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
)

// oneReceiver is a relay with a receiver that is disabled or not.
type oneReceiver struct{ disabled atomic.Bool }

func (o *oneReceiver) Call(_ context.Context, _, _ string, _, answer any) error {
	return json.Unmarshal(fmt.Appendf(nil, `{"items":[{"name":"ci","state":{"disabled":%t}}]}`, o.disabled.Load()), answer)
}

// alertTarget is the URL that gets the alerts. It fails the first requests.
type alertTarget struct {
	failures atomic.Int64
	requests chan *http.Request
	bodies   chan string
}

func (a *alertTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // what is missing fails the test
	a.requests <- r
	a.bodies <- string(body)
	if a.failures.Add(-1) >= 0 {
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}
}

// syncBuffer is a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A receiver that is disabled, and enabled again, is reported by signed requests. One that fails is repeated. The secret is nowhere in the log, and
// neither is the URL, which may have a token.
func TestAlerts(t *testing.T) {
	target := &alertTarget{requests: make(chan *http.Request, 10), bodies: make(chan string, 10)}
	target.failures.Store(1)
	srv := httptest.NewServer(target)
	defer srv.Close()
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 24))
	alerts, err := NewAlerts(srv.URL+"/hook?token=hidden", secret, "https://example.com/ops/")
	require.NoError(t, err)
	alerts.every = 50 * time.Millisecond
	relay := &oneReceiver{}
	relay.disabled.Store(true)
	var log syncBuffer
	c := Handler(Config{Relay: relay, Alerts: alerts, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	closed := sync.OnceFunc(c.Close)
	defer closed()
	defer c.sampler.Watch()()
	signer, err := webhook.NewSigner(secret)
	require.NoError(t, err)
	got := func() (id string, event map[string]string) {
		r, body := <-target.requests, <-target.bodies
		h := r.Header
		var at int64
		_, err := fmt.Sscan(h.Get(webhook.HeaderTimestamp), &at)
		require.NoError(t, err)
		want := http.Header{}
		signer.Sign(want, h.Get(webhook.HeaderID), time.Unix(at, 0), []byte(body))
		require.Equal(t, want.Get(webhook.HeaderSignature), h.Get(webhook.HeaderSignature))
		require.Equal(t, "jetpull-console", h.Get("User-Agent"))
		require.NoError(t, json.Unmarshal([]byte(body), &event))
		return h.Get(webhook.HeaderID), event
	}
	first, event := got()
	require.Equal(t, []string{"console.red", "receiver", "ci", "https://example.com/ops/receiver?name=ci"},
		[]string{event["type"], event["kind"], event["object"], event["url"]})
	require.Contains(t, event["sentence"], "410")
	again, repeated := got()
	require.Equal(t, first, again)
	require.Equal(t, event, repeated)
	relay.disabled.Store(false)
	_, event = got()
	require.Equal(t, []string{"console.recovered", "ci"}, []string{event["type"], event["object"]})

	// An alert that is not delivered is in the log.
	target.failures.Store(100)
	relay.disabled.Store(true)
	got()
	closed()
	require.Contains(t, log.String(), "an event could not be sent")
	require.Contains(t, log.String(), "console.red")
	require.NotContains(t, log.String(), strings.TrimPrefix(secret, "whsec_"))
	require.NotContains(t, log.String(), "hidden")
}

// No error has a secret.
func TestWrongAlerts(t *testing.T) {
	none, err := NewAlerts("", "", "")
	require.NoError(t, err)
	require.Nil(t, none)
	good := base64.StdEncoding.EncodeToString(make([]byte, 24))
	for _, wrong := range [][]string{
		{"", good, "", "absolute"},
		{"ftp://example.com", good, "", "scheme"},
		{"http://example.com", "", "", "empty"},
		{"http://example.com", "hidden!", "", "base64"},
		{"http://example.com", "aGlkZGVu", "", "24 to 64"},
		{"http://example.com", good, "example.com", "public URL"},
	} {
		_, err := NewAlerts(wrong[0], wrong[1], wrong[2])
		require.ErrorContains(t, err, wrong[3])
		if wrong[1] != "" {
			require.NotContains(t, err.Error(), wrong[1])
		}
	}
}
