package console

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// The header has the environment with its colour, the server and the account. A user that may not ask for the account sees the rest, and is
// refused once for each server.
func TestWhereAPageIs(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithConfig(`server_name: n1
accounts {SHOP {jetstream: enabled, users: [
  {user: ada, password: hidden}
  {user: lin, password: hidden, permissions: {publish: {deny: "$SYS.>"}}}
]}}`))
	refused := make(chan error, 10)
	for user, want := range map[string]string{
		"ada": `<strong><bdi>&lt;production&gt;</bdi></strong> <bdi>n1</bdi> <bdi>SHOP</bdi></div>`,
		"lin": `<strong><bdi>&lt;production&gt;</bdi></strong> <bdi>n1</bdi></div>`,
	} {
		nc := srv.Connect(t, nats.UserInfo(user, "hidden"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		c := Handler(Config{NATS: JetStream(srv.JetStream(t, nc)), Environment: "<production>", Log: slog.New(slog.DiscardHandler)})
		t.Cleanup(c.Close)
		if user == "lin" {
			require.ErrorIs(t, <-refused, nats.ErrPermissionViolation)
		}
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			text := read(c, "/log")
			require.Contains(t, text, want)
			require.Contains(t, text, `<header class="env env`)
			require.NotContains(t, text, "hidden@")
		}, time.Minute, 10*time.Millisecond)
	}
	require.Empty(t, refused)
}

// Another user of the account can answer in place of the server. The page shows a short text of it.
func TestForgedAccount(t *testing.T) {
	srv := servertest.RunServer(t)
	forged, err := json.Marshal(map[string]any{"data": map[string]any{"account": "<script>" + strings.Repeat("x", 100_000)}})
	require.NoError(t, err)
	forger := srv.Connect(t)
	_, err = forger.Subscribe("$SYS.REQ.USER.INFO", func(m *nats.Msg) { _ = m.Respond(forged) })
	require.NoError(t, err)
	require.NoError(t, forger.Flush())
	c := Handler(Config{NATS: JetStream(srv.JetStream(t, srv.Connect(t))), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)
	require.EventuallyWithT(t, func(t *assert.CollectT) { require.Contains(t, read(c, "/log"), ", account ") }, time.Minute, 10*time.Millisecond)
	text := read(c, "/log")
	require.NotContains(t, text, "<script>x")
	require.NotContains(t, text, strings.Repeat("x", 201))
}

// The address of the server is shown without what authenticates at it.
func TestTheHeaderHasNoSecret(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithConfig(`authorization {token: s3cr3t}`))
	nc, err := nats.Connect(strings.Replace(srv.URL(), "nats://", "nats://s3cr3t@", 1))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	c := Handler(Config{NATS: JetStream(srv.JetStream(t, nc)), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)
	text := read(c, "/log")
	require.Contains(t, text, "at nats://…@")
	require.NotContains(t, text, "s3cr3t")
}

// A console without NATS and without a name has an empty place in the header.
func TestAPageWithoutAPlace(t *testing.T) {
	c := Handler(Config{Log: slog.New(slog.DiscardHandler)})
	defer c.Close()
	text := read(c, "/log")
	require.Contains(t, text, "<header>")
	require.NotContains(t, text, `class="where"`)
}

func read(c http.Handler, path string) string {
	answer := httptest.NewRecorder()
	c.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer.Body.String()
}
