package broker

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// A consumer's own authorities and client certificate are in a folder that is named after it.
func TestCertificatesOfAConsumer(t *testing.T) {
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Connection.EgressCertificates = t.TempDir()
	dir := filepath.Join(cfg.Connection.EgressCertificates, "ch", "a%2Fb")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600))
	n := startNode(t, cfg)
	putConsumer(t, n, "a%2Fb", receiver.URL, nil)
	broadcast(t, n, "m", "x", nil)
	waitState(t, n, "m", "a/b", "DELIVERED")
}

// The rate and concurrency of a consumer's callbacks stay within its settings.
func TestRateAndConcurrencyOfAConsumer(t *testing.T) {
	var mu sync.Mutex
	var at []time.Time
	var running, most atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Broker-Consumer-ID") == "rate" {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			return
		}
		now := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		<-time.After(30 * time.Millisecond) // the receiver's work
	}))
	defer receiver.Close()
	n := startNode(t, testConfig(t))
	putConsumer(t, n, "rate", receiver.URL, url.Values{"rateLimit": {"20"}})
	const messages = 11
	// The first callback begins after this time; its arrival may be later.
	begin := time.Now()
	for i := range messages {
		broadcast(t, n, string(rune('a'+i)), "x", nil)
	}
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(at) == messages }, 20*time.Second, 5*time.Millisecond)
	require.GreaterOrEqual(t, at[messages-1].Sub(begin), 499*time.Millisecond, "ten intervals of 50 ms, but for what the limiter rounds")

	putConsumer(t, n, "two", receiver.URL, url.Values{"concurrency": {"2"}})
	for i := range messages {
		broadcast(t, n, "second"+string(rune('a'+i)), "x", map[string]string{"X-Broker-Message-Priority": "1"})
	}
	for i := range messages {
		waitState(t, n, "second"+string(rune('a'+i)), "two", "DELIVERED")
	}
	require.LessOrEqual(t, most.Load(), int32(2))
}

// A receiver that asks for time gets the message again after it, from another process too.
func TestRetryAfterOfACallback(t *testing.T) {
	var asked, retried atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.CompareAndSwap(0, time.Now().UnixNano()) {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		retried.Store(time.Now().UnixNano())
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, nil)
	broadcast(t, n, "m", "x", nil)
	require.Eventually(t, func() bool { list, _ := attemptsAt(t, n, "m", "k"); return len(list) == 1 }, waitLong, waitStep)
	stopNode(t, n)
	waitState(t, startNode(t, cfg), "m", "k", "DELIVERED")
	require.GreaterOrEqual(t, time.Duration(retried.Load()-asked.Load()), 2*time.Second)
}

// A remote client that may register consumers cannot use callbacks to reach this machine.
func TestCallbackToAPrivateAddressIsNotMade(t *testing.T) {
	var reached atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer receiver.Close()
	for networks, want := range map[string]string{"public": "DEAD", "127.0.0.0/8": "DELIVERED"} {
		cfg := testConfig(t)
		cfg.Connection.Networks = networks
		cfg.Dispatch.MaxRetry = 1
		n := startNode(t, cfg)
		putConsumer(t, n, "k", receiver.URL, nil)
		reached.Store(false)
		broadcast(t, n, "m", "x", nil)
		waitState(t, n, "m", "k", want)
		require.Equal(t, want == "DELIVERED", reached.Load())
		if want == "DEAD" {
			list, _ := attemptsAt(t, n, "m", "k")
			require.NotEmpty(t, list)
			require.Regexp(t, `127\.0\.0\.1 is not public; see \[consumer-connection\] networks \(--consumer-connection-networks\)$`, list[0].Error)
		}
	}
}

// One trace connects the producer's span, the broadcast and the callback.
func TestTraceFromBroadcastToCallback(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(provider)
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	var parent atomic.Pointer[string]
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s := r.Header.Get("Traceparent")
		parent.Store(&s)
	}))
	defer receiver.Close()
	n := startNode(t, testConfig(t))
	putConsumer(t, n, "k", receiver.URL, nil)
	broadcast(t, n, "m", "x", map[string]string{"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	waitState(t, n, "m", "k", "DELIVERED")
	byName := map[string]tracetest.SpanStub{}
	require.Eventually(t, func() bool {
		for _, s := range spans.GetSpans() {
			byName[s.Name] = s
		}
		return len(byName) == 2
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, "b7ad6b7169203331", byName["broadcast"].Parent.SpanID().String())
	require.Equal(t, byName["broadcast"].SpanContext.SpanID(), byName["callback"].Parent.SpanID())
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", byName["callback"].SpanContext.TraceID().String())
	require.Contains(t, *parent.Load(), byName["callback"].SpanContext.SpanID().String())
}

// When a pull consumer becomes a push consumer, its queued jobs are pushed. In the other direction, undelivered jobs can be
// claimed.
func TestConsumerChangesItsType(t *testing.T) {
	var calls atomic.Int32
	var healthy atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if !healthy.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.Backoff = domain.Backoff{time.Hour}
	n := startNode(t, cfg)
	change := func(kind string) {
		t.Helper()
		_, _, h := call(t, n, "GET", "/channel/ch/consumer/k", nil, "")
		form := url.Values{"token": {"kt"}, "callbackUrl": {receiver.URL}, "type": {kind}}.Encode()
		code, body, _ := call(t, n, "PUT", "/channel/ch/consumer/k",
			map[string]string{"Content-Type": "application/x-www-form-urlencoded", "If-Unmodified-Since": h.Get("Last-Modified")}, form)
		require.Equal(t, 200, code, body)
	}
	putConsumer(t, n, "k", receiver.URL, nil)
	broadcast(t, n, "failed", "x", nil)
	require.Eventually(t, func() bool {
		m, err := n.store.Messages.Message(t.Context(), "ch", "failed")
		jobs := n.store.Index.JobsOf("ch", m.Seq)
		return err == nil && calls.Load() == 1 && len(jobs) == 1 && jobs[0].Status == domain.Queued && jobs[0].Retries == 1
	}, 10*time.Second, time.Millisecond)
	change("pull")
	broadcast(t, n, "fresh", "x", nil)
	require.Len(t, claim(t, n, "k", "?limit=1&wait=5s"), 1)
	healthy.Store(true)
	change("push")
	waitState(t, n, "fresh", "k", "DELIVERED")
	// The claimed job is queued again when its claim ends.
	waitState(t, n, "failed", "k", "DELIVERED")
}
