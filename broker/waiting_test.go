package broker

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) (address string, port int) {
	t.Helper()
	free, err := servertest.FreeAddresses(1)
	require.NoError(t, err)
	return free[0].String(), free[0].Port
}

// answered waits until a path is answered with a status, and returns the body.
func answered(t *testing.T, address, path string, status int) (body string) {
	t.Helper()
	waitUntil(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		body = string(text)
		return err == nil && resp.StatusCode == status
	}, path+" is not answered with the status that it is to have")
	return body
}

// waits checks that a broker during its start is alive, not ready, and names what it waits for.
func waits(t *testing.T, address, reason string, log *servertest.Log) {
	t.Helper()
	answered(t, address, "/healthz", 200)
	waitUntil(t, func() bool { return strings.Contains(answered(t, address, "/readyz", 503), reason) }, "/readyz does not say that the start "+reason)
	require.Contains(t, answered(t, address, "/channels", 503), reason)
	waitUntil(t, func() bool {
		return strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), strings.TrimPrefix(reason, "waits for "))
	}, "the log does not say what the start waits for")
}

// A broker that starts before its NATS servers waits for them.
func TestStartBeforeTheServers(t *testing.T) {
	_, port := freeAddress(t)
	srv := servertest.RunServer(t, servertest.WithOptions(func(o *server.Options) { o.Port = port }))
	srv.Stop()
	cfg := externalConfig(t, srv.URL(), 1)
	cfg.HTTP.Listener, _ = freeAddress(t)
	var log servertest.Log
	started := startLater(t, cfg, slog.New(slog.NewTextHandler(&log, nil)))
	waits(t, cfg.HTTP.Listener, "waits for its NATS servers", &log)
	require.Contains(t, log.String(), "no servers available", "the log has the reason")
	srv.Start()
	n := <-started
	require.NotNil(t, n)
	defer stopNode(t, n)
	answered(t, cfg.HTTP.Listener, "/readyz", 200)
	broadcast(t, n, "m", "x", nil)
}

// The wait ends after start-wait-in-seconds, and at once with a permanent error.
func TestStartDoesNotWaitForEver(t *testing.T) {
	cfg := testConfig(t)
	cfg.NATS.URL, _ = freeAddress(t)
	cfg.NATS.StartWait = 100 * time.Millisecond
	_, err := Start(t.Context(), cfg, testLogger(t))
	require.ErrorContains(t, err, "the start has waited for 100ms")
	require.ErrorContains(t, err, "no servers available")
	require.ErrorContains(t, err, "start-wait-in-seconds")

	srv := servertest.RunServer(t, servertest.WithConfig(`authorization {user: u, password: p}`))
	cfg.NATS.URL, cfg.NATS.StartWait = srv.URL(), 0
	_, err = Start(t.Context(), cfg, testLogger(t))
	require.ErrorContains(t, err, "Authorization Violation")
	cfg.NATS.Creds = "/does/not/exist"
	_, err = Start(t.Context(), cfg, testLogger(t))
	require.ErrorContains(t, err, "open /does/not/exist")
}
