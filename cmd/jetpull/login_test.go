package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/test/servertest"
)

// Flags and variables are those of the nats command, and a flag goes before a variable.
func TestLogin(t *testing.T) {
	user, public, seed := nkeyUser(t)
	file := writeFile(t, seed)
	for name, tt := range map[string]struct {
		config    string
		admin     nats.Option
		flags     []string
		variables map[string]string
		wrong     map[string]string // variables that a flag overrules
	}{
		"user": {
			`authorization { user: ann, password: pw }`, nats.UserInfo("ann", "pw"),
			[]string{"--user", "ann", "--password", "pw"},
			map[string]string{"NATS_USER": "ann", "NATS_PASSWORD": "pw"},
			map[string]string{"NATS_USER": "bob", "NATS_PASSWORD": "no"},
		},
		"token": {
			`authorization { token: tok }`, nats.Token("tok"),
			[]string{"--token", "tok"},
			map[string]string{"NATS_TOKEN": "tok"},
			map[string]string{"NATS_TOKEN": "other"},
		},
		"nkey": {
			`authorization { users: [ { nkey: ` + public + ` } ] }`, nats.Nkey(public, user.Sign),
			[]string{"--nkey", file},
			map[string]string{"NATS_NKEY": file},
			map[string]string{"NATS_USER": "bob"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := servertest.RunServer(t, servertest.WithConfig(tt.config))
			withStream(t, srv, tt.admin)
			info := []string{"info", "S", "c", "--server", srv.URL()}
			require.Equal(t, cli.ExitError, jetpullRun(t, info...).code)
			for key, value := range tt.wrong {
				t.Setenv(key, value)
			}
			r := jetpullRun(t, append(info, tt.flags...)...)
			require.Equal(t, cli.ExitDone, r.code, r.err)
			for key := range tt.wrong {
				t.Setenv(key, "")
			}
			for key, value := range tt.variables {
				t.Setenv(key, value)
			}
			r = jetpullRun(t, info...)
			require.Equal(t, cli.ExitDone, r.code, r.err)
		})
	}
}

func TestConnectionFlags(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithDomain("hub"))
	withStream(t, srv)
	for _, args := range [][]string{
		{"-s", srv.URL()},
		{"--nats", srv.URL()},
		{"--server", srv.URL(), "-j"},
		{"-s", srv.URL(), "--js-domain", "hub"},
		{"-s", srv.URL(), "--domain", "hub"},
		{"-s", srv.URL(), "--js-api-prefix", "$JS.hub.API"},
	} {
		r := jetpullRun(t, append([]string{"info", "S", "c"}, args...)...)
		require.Equal(t, cli.ExitDone, r.code, "%q: %s", args, r.err)
	}
	for want, args := range map[string][]string{
		"--password needs --user": {"--password", "pw"},
		"--tlscert and --tlskey":  {"--tlskey", "k.pem"},
		"--js-domain hub and --js-api-prefix $JS.hub.API exclude each other": {"--js-domain", "hub", "--js-api-prefix", "$JS.hub.API"},
		"is not more than 0": {"--timeout", "0s"},
		"--context":          {"--context", "mine"},
	} {
		r := jetpullRun(t, append([]string{"info", "S", "c", "-s", srv.URL()}, args...)...)
		require.Equal(t, cli.ExitUsage, r.code, want)
		require.Contains(t, r.err, want)
	}
	for _, flags := range [][]string{{"--creds", "nowhere"}, {"--nkey", "nowhere"}} {
		r := jetpullRun(t, append([]string{"info", "S", "c", "-s", srv.URL()}, flags...)...)
		require.Equal(t, cli.ExitError, r.code)
		require.Contains(t, r.err, "(NATS_"+strings.ToUpper(flags[0][2:])+") nowhere: ")
		require.Contains(t, r.err, flags[0])
	}
	t.Setenv("NATS_TIMEOUT", "soon")
	require.Contains(t, jetpullRun(t, "info", "S", "c", "-s", srv.URL()).err, "NATS_TIMEOUT")
	t.Setenv("NATS_TIMEOUT", "2s")
	require.Equal(t, cli.ExitDone, jetpullRun(t, "info", "S", "c", "-s", srv.URL()).code)
}

func TestVersionAndUnknownCommands(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		r := jetpullRun(t, args...)
		require.Equal(t, cli.ExitDone, r.code)
		require.Regexp(t, `^jetpull \S+`, r.out)
	}
	require.Contains(t, jetpullRun(t, "completion", "bash").out, "jetpull")
	for _, name := range []string{"github.com/nats-io/nats-server/v2 v2.", "Go standard library", "console/internal/view/thirdparty"} {
		require.Contains(t, jetpullRun(t, "licenses").out, name)
	}
	for _, args := range [][]string{
		{"nothing"},
		{"help", "nothing"},
		{"completion", "nothing"},
		{"dlq", "nothing"},
		{"relay", "nothing"},
		{"broker", "nothing"},
		{"version", "nothing"},
		{"licenses", "nothing"},
	} {
		require.Equal(t, cli.ExitUsage, jetpullRun(t, args...).code, "%q", args)
	}
	require.Equal(t, cli.ExitDone, jetpullRun(t, "help", "consume").code)
	require.Equal(t, cli.ExitDone, jetpullRun(t, "help", "dlq", "ls").code)
}
