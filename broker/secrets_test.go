package broker

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/test/servertest"
)

// No token appears in a list or in the log, at the most detailed level and in errors.
func TestTokensAreInNoLogAndNoList(t *testing.T) {
	secrets := []string{
		"channel-secret", "producer-secret", "consumer-secret", "admin-secret", "wrong-secret", webhook.NewSecret(), "header-secret",
		"header-secret-longer",
	}
	const querySecret = "query-secret"
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // it answers with the request
		w.WriteHeader(http.StatusInternalServerError)
		_ = r.Header.Write(w)
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Seed.Consumers = []SeedConsumer{{
		SeedItem: SeedItem{ID: "seeded", Token: secrets[2]}, Channel: "ch",
		CallbackURL: "http://u:" + querySecret + "@127.0.0.1:1/?key=" + querySecret,
	}}
	cfg.Seed.Channels[0].Token, cfg.Seed.Producers[0].Token, cfg.Admin.Token = secrets[0], secrets[1], secrets[3]
	cfg.Dispatch.MaxRetry = 1
	var log servertest.Log
	n, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	t.Cleanup(func() { stopNode(t, n) })
	admin := map[string]string{"X-Broker-Admin-Token": secrets[3], "Content-Type": "application/x-www-form-urlencoded"}
	form := url.Values{
		"token": {secrets[2]}, "callbackUrl": {receiver.URL + "/hook?key=" + querySecret}, "signingSecret": {secrets[5]},
		"headers": {`{"X-Own":"` + secrets[6] + `","X-Longer":"` + secrets[7] + `"}`},
	}.Encode()
	code, body, _ := call(t, n, "PUT", "/channel/ch/consumer/k", admin, form)
	require.Equal(t, 200, code, body)
	good := map[string]string{
		"X-Broker-Channel-Token": secrets[0], "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": secrets[1],
		"X-Broker-Message-ID": "m",
	}
	good["Authorization"], good["X-Broker-Metadata-Headers"] = "Bearer "+secrets[0], "Authorization, Cookie"
	code, _, _ = call(t, n, "POST", "/channel/ch/broadcast", good, "x")
	require.Equal(t, 201, code)
	delete(good, "Authorization")
	good["X-Broker-Producer-Token"] = secrets[4]
	code, _, _ = call(t, n, "POST", "/channel/ch/broadcast", good, "x")
	require.Equal(t, 403, code)
	code, _, _ = call(t, n, "GET", "/channels", map[string]string{"X-Broker-Admin-Token": secrets[4]}, "")
	require.Equal(t, 401, code)
	require.Eventually(t, func() bool { return n.store.Index.CountJobs(mustConsumer(t, n, "k").Number)[3].Count == 1 }, waitLong, waitStep)
	var shown bytes.Buffer
	for _, path := range []string{
		"/channels", "/producers", "/channel/ch/consumers", "/channel/ch/messages", "/channel/ch/message/m",
		"/channel/ch/consumer/k/dlq", "/job-status", "/dlq-status", "/_status", "/metrics",
	} {
		code, body, _ := call(t, n, "GET", path, admin, "")
		require.Equal(t, 200, code, path)
		shown.WriteString(body)
		if path == "/_status" {
			require.NotContains(t, body, querySecret)
		}
	}
	// Another receiver, which cannot be reached, has its URL in the error.
	form = url.Values{"token": {secrets[2]}, "callbackUrl": {"http://127.0.0.1:1/hook?key=" + querySecret}}.Encode()
	code, body, _ = call(t, n, "PUT", "/channel/ch/consumer/unreachable", admin, form)
	require.Equal(t, 200, code, body)
	good["X-Broker-Producer-Token"], good["X-Broker-Message-ID"] = secrets[1], "m2"
	code, _, _ = call(t, n, "POST", "/channel/ch/broadcast", good, "x")
	require.Equal(t, 201, code)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), `http://127.0.0.1:1/hook?…`) }, waitLong, waitStep)
	require.NotContains(t, log.String(), querySecret)
	require.Contains(t, log.String(), "callback failed")
	for _, secret := range secrets {
		require.NotContains(t, log.String(), secret)
		require.NotContains(t, shown.String(), secret)
	}
}
