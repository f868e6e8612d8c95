package relay

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An error is logged, and sent to Sentry if there is a DSN, with its attributes as tags.
func TestReporter(t *testing.T) {
	t.Parallel()
	sentry := newPeer(t, func(int, seen) (int, string) { return 200, "{}" })
	dsn := strings.Replace(sentry.URL, "http://", "http://key@", 1) + "/42"
	for _, to := range []string{"", dsn} {
		var log bytes.Buffer
		r, err := newReporter(slog.New(slog.NewTextHandler(&log, nil)), to)
		require.NoError(t, err)
		r.Report(t.Context(), fmt.Errorf("the store: %w", errors.New("no room")), "receiver", "ci", "message", 7)
		r.close()
		require.Contains(t, log.String(), `error="the store: no room" receiver=ci message=7`)
	}
	require.Equal(t, 1, sentry.count())
	got := sentry.list()[0]
	require.Equal(t, "/api/42/envelope/", got.Path)
	for _, part := range []string{"the store: no room", `"receiver":"ci"`, `"message":"7"`} {
		require.Contains(t, got.Body, part)
	}
	_, err := newReporter(slog.New(slog.DiscardHandler), "no DSN")
	require.ErrorContains(t, err, "[sentry] dsn")
}

// A running relay reports errors that an operator should see, without payload or token.
func TestRelayReportsToSentry(t *testing.T) {
	t.Parallel()
	sentry := newPeer(t, func(int, seen) (int, string) { return 200, "{}" })
	s := startSite(t, func(c *Config) { c.Sentry.DSN = strings.Replace(sentry.URL, "http://", "http://key@", 1) + "/42" })
	r := newPeer(t, func(int, seen) (int, string) { return http.StatusGone, "" })
	s.receiver("ci", r.URL, nil)
	m := message("a", "1", "ci")
	m["payload"] = "confidential"
	s.want(202, "POST", "/v1/messages", adminToken, m)
	eventually(t, func() bool { return sentry.count() > 0 }, "it is not reported")
	body := sentry.list()[0].Body
	require.Contains(t, body, "410")
	require.NotContains(t, body, "confidential")
	require.NotContains(t, body, adminToken)
}
