package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/test/servertest"
)

// A setting that selects the server is followed or refused, and never ignored.
func TestBrokerCommandRefusesOtherServers(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithConfig(`authorization { user: ann, password: secret }`))
	withWrong := strings.Replace(srv.URL(), "nats://", "nats://ann:wrong-secret@", 1)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--context", "bare"}, cli.ExitUsage, "--context"},
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
