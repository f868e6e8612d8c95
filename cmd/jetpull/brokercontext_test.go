package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/test/servertest"
)

// The broker connects as a context of the nats command says, with its user and
// in its domain, and its streams are there.
func TestBrokerCommandUsesAContext(t *testing.T) {
	ownContexts(t)
	srv := servertest.RunServer(t, servertest.WithDomain("hub"), servertest.WithConfig(`authorization { user: ann, password: pw }`))
	writeContext(t, "mine", map[string]any{"url": srv.URL(), "user": "ann", "password": "pw", "jetstream_domain": "hub"})
	url, stop := listen(t, brokercmd.New(), "--context", "mine")
	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	for path, fields := range map[string]string{"/producer/pr": "token=pt", "/channel/ch": "token=ct"} {
		code, body := brokerRequest(t, http.MethodPut, url+path, form, fields)
		require.Equal(t, http.StatusOK, code, body)
	}
	code, body := brokerRequest(t, http.MethodPut, url+"/channel/ch/consumer/k", form, "type=pull&token=kt&callbackUrl=http://127.0.0.1:9/")
	require.Equal(t, http.StatusOK, code, body)
	code, body = brokerRequest(t, http.MethodPost, url+"/channel/ch/broadcast", map[string]string{
		"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt",
	}, "x")
	require.Equal(t, http.StatusCreated, code, body)
	code, body = brokerRequest(t, http.MethodPost, url+"/channel/ch/consumer/k/claim?wait=5s", map[string]string{
		"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt",
	}, "")
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"Payload":"x"`)
	require.NoError(t, stop())
	js, err := jetstream.New(srv.Connect(t, nats.UserInfo("ann", "pw")))
	require.NoError(t, err)
	_, err = js.Stream(t.Context(), "broker_messages")
	require.NoError(t, err)
}

// The relay connects as a context says: here with an nkey. It has no domain, and refuses one.
func TestRelayCommandUsesAContext(t *testing.T) {
	ownContexts(t)
	user, public, seed := nkeyUser(t)
	srv := servertest.RunServer(t, servertest.WithConfig(`authorization { users: [ { nkey: `+public+` } ] }`))
	writeContext(t, "mine", map[string]any{"url": srv.URL(), "nkey": writeFile(t, seed)})
	writeContext(t, "domain", map[string]any{"url": srv.URL(), "jetstream_domain": "hub"})
	_, stop := listen(t, relaycmd.New(), "--context", "mine")
	require.NoError(t, stop())
	js, err := jetstream.New(srv.Connect(t, nats.Nkey(public, user.Sign)))
	require.NoError(t, err)
	_, err = js.Stream(t.Context(), "relay_from_sender")
	require.NoError(t, err)
	r := jetpullRun(t, "relay", "--listen", "127.0.0.1:0", "--context", "domain")
	require.Equal(t, cli.ExitUsage, r.code, r.err)
	require.Contains(t, r.err, "jetstream_domain")
}

// A setting that selects the server is followed or refused, and never ignored.
func TestBrokerCommandRefusesOtherServers(t *testing.T) {
	ownContexts(t)
	srv := servertest.RunServer(t, servertest.WithConfig(`authorization { user: ann, password: secret }`))
	writeContext(t, "bare", map[string]any{"url": srv.URL()})
	writeContext(t, "prefix", map[string]any{"url": srv.URL(), "jetstream_api_prefix": "$JS.hub.API"})
	withWrong := strings.Replace(srv.URL(), "nats://", "nats://ann:wrong-secret@", 1)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--nats", srv.URL(), "--context", "bare"}, cli.ExitUsage, "--context bare exclude each other"},
		{[]string{"--context", "none"}, cli.ExitUsage, `no context "none"`},
		{[]string{"--context", "prefix"}, cli.ExitUsage, "jetstream_api_prefix"},
		{[]string{"--context", "bare"}, cli.ExitError, "Authorization"},
		{[]string{"--nats", withWrong}, cli.ExitError, "Authorization"},
		{[]string{"--nats", srv.URL(), "--creds", "/does/not/exist"}, cli.ExitError, "/does/not/exist"},
		{[]string{"--domain", "hub"}, cli.ExitUsage, "[nats] domain"},
		{[]string{"--creds", "file"}, cli.ExitUsage, "[nats] creds"},
		{[]string{"--embedded", "dir"}, cli.ExitUsage, "--embedded"},
		{[]string{"--embedded-port", "4222"}, cli.ExitUsage, "--embedded-port"},
		{[]string{"--timeout", "1s"}, cli.ExitUsage, "--timeout"},
	} {
		r := jetpullRun(t, append([]string{"broker", "--listen", "127.0.0.1:0", "--store-dir", t.TempDir()}, tt.args...)...)
		require.Equal(t, tt.code, r.code, "%v: %s", tt.args, r.err)
		require.Contains(t, r.err, tt.want, "%v", tt.args)
		require.NotContains(t, r.err, "wrong-secret")
	}
}

// A broker in a domain that does not exist says so instead of waiting for it.
func TestBrokerCommandInAMissingDomain(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t, servertest.WithDomain("hub"))
	r := jetpullRun(t, "broker", "--listen", "127.0.0.1:0", "--nats", srv.URL(), "--domain", "nowhere")
	require.Equal(t, cli.ExitError, r.code, r.err)
	require.Contains(t, r.err, "open the store")
}
