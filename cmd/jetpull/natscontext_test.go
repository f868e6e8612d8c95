package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/test/servertest"
)

// ownContexts gives a test a folder for contexts.
func ownContexts(t *testing.T) { t.Setenv("XDG_CONFIG_HOME", t.TempDir()) }

// writeContext writes a context as the nats command does, and returns its path.
func writeContext(t *testing.T, name string, fields map[string]any) string {
	t.Helper()
	dir := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	content, err := json.Marshal(fields)
	require.NoError(t, err)
	path := filepath.Join(dir, name+".json")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func writeFile(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// nkeyUser makes a user with an nkey.
func nkeyUser(t *testing.T) (user nkeys.KeyPair, public string, seed []byte) {
	t.Helper()
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err = user.PublicKey()
	require.NoError(t, err)
	seed, err = user.Seed()
	require.NoError(t, err)
	return user, public, seed
}

// withStream makes stream S with consumer c as the given user.
func withStream(t *testing.T, srv *servertest.Server, opts ...nats.Option) {
	t.Helper()
	js, err := jetstream.New(srv.Connect(t, opts...))
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	_, err = js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "c"})
	require.NoError(t, err)
}

func TestContextAuthentication(t *testing.T) {
	user, public, seed := nkeyUser(t)
	for _, tt := range []struct {
		name, config string
		admin        nats.Option
		fields       map[string]any
	}{
		{
			"password", `authorization { user: ann, password: pw }`, nats.UserInfo("ann", "pw"),
			map[string]any{"user": "ann", "password": "pw"},
		},
		{"token", `authorization { token: tok }`, nats.Token("tok"), map[string]any{"token": "tok"}},
		{
			"nkey", `authorization { users: [ { nkey: ` + public + ` } ] }`,
			nats.Nkey(public, user.Sign),
			map[string]any{"nkey": writeFile(t, seed)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ownContexts(t)
			srv := servertest.RunServer(t, servertest.WithConfig(tt.config))
			withStream(t, srv, tt.admin)
			tt.fields["url"] = srv.URL()
			writeContext(t, "mine", tt.fields)
			r := jetpullRun(t, "info", "S", "c", "--context", "mine")
			require.Equal(t, cli.ExitDone, r.code, r.err)
			writeContext(t, "bare", map[string]any{"url": srv.URL()})
			r = jetpullRun(t, "info", "S", "c", "--context", "bare")
			require.Equal(t, cli.ExitError, r.code)
			require.Contains(t, r.err, "Authorization Violation")
		})
	}
}

// TestContextCredentials runs a server that trusts an operator, with the user's
// credentials in a file, in the context itself, and given by flag.
func TestContextCredentials(t *testing.T) {
	operator, err := nkeys.CreateOperator()
	require.NoError(t, err)
	account, err := nkeys.CreateAccount()
	require.NoError(t, err)
	system, err := nkeys.CreateAccount()
	require.NoError(t, err)
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	key := func(k nkeys.KeyPair) string {
		p, err := k.PublicKey()
		require.NoError(t, err)
		return p
	}
	operatorJWT, err := jwt.NewOperatorClaims(key(operator)).Encode(operator)
	require.NoError(t, err)
	accountClaims := jwt.NewAccountClaims(key(account))
	accountClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1, MaxAckPending: -1,
	}
	accountJWT, err := accountClaims.Encode(operator)
	require.NoError(t, err)
	systemJWT, err := jwt.NewAccountClaims(key(system)).Encode(operator)
	require.NoError(t, err)
	userJWT, err := jwt.NewUserClaims(key(user)).Encode(account)
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	creds, err := jwt.FormatUserConfig(userJWT, seed)
	require.NoError(t, err)
	file := writeFile(t, creds)

	ownContexts(t)
	srv := servertest.RunServer(t, servertest.WithConfig(
		"operator: "+operatorJWT+"\nsystem_account: "+key(system)+"\nresolver: MEMORY\nresolver_preload: { "+
			key(account)+": "+accountJWT+"\n"+key(system)+": "+systemJWT+" }\n"))
	withStream(t, srv, nats.UserCredentials(file))
	t.Setenv("CREDS_DIR", filepath.Dir(file))
	// A nsc that knows one profile.
	nsc := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(nsc, "nsc"), fmt.Appendf(nil,
		"#!/bin/sh\n[ \"$*\" = 'generate profile nsc://o/a/u' ] && echo '{\"user_creds\":%q,\"operator\":{\"service\":[%q]}}'\n", file, srv.URL()), 0o700))
	t.Setenv("PATH", nsc+string(os.PathListSeparator)+os.Getenv("PATH"))
	writeContext(t, "profile", map[string]any{"nsc": "nsc://o/a/u"})
	require.Equal(t, cli.ExitDone, jetpullRun(t, "info", "S", "c", "--context", "profile").code, "credentials and server from nsc")
	writeContext(t, "unknown", map[string]any{"nsc": "nsc://o/a/v"})
	require.Contains(t, jetpullRun(t, "info", "S", "c", "--context", "unknown").err, "nsc generate profile failed")
	for name, fields := range map[string]map[string]any{
		"file":     {"creds": file},
		"variable": {"creds": "$CREDS_DIR/secret"},
		"inline":   {"user_jwt": userJWT, "user_seed": string(seed)},
	} {
		fields["url"] = srv.URL()
		writeContext(t, name, fields)
		r := jetpullRun(t, "info", "S", "c", "--context", name)
		require.Equal(t, cli.ExitDone, r.code, "%s: %s", name, r.err)
	}
	require.Equal(t, cli.ExitDone, jetpullRun(t, "info", "S", "c", "--nats", srv.URL(), "--creds", file).code)
	t.Setenv("NATS_CREDS", file)
	require.Equal(t, cli.ExitDone, jetpullRun(t, "info", "S", "c", "-s", srv.URL()).code)
	t.Setenv("NATS_CREDS", "")
	require.Equal(t, cli.ExitError, jetpullRun(t, "info", "S", "c", "--nats", srv.URL()).code)
}

func TestContextBringsDomainPrefixAndInbox(t *testing.T) {
	ownContexts(t)
	srv := servertest.RunServer(t, servertest.WithDomain("hub"), servertest.WithConfig(`
		authorization { users: [ { user: admin, password: pw }
			{ user: ann, password: pw, permissions: { subscribe: "_ANN.>", publish: "$JS.>" } } ] }`))
	withStream(t, srv, nats.UserInfo("admin", "pw"))
	base := map[string]any{"url": srv.URL(), "user": "ann", "password": "pw", "inbox_prefix": "_ANN"}
	with := func(key string, value any) map[string]any {
		fields := map[string]any{key: value}
		for k, v := range base {
			fields[k] = v
		}
		return fields
	}
	writeContext(t, "domain", with("jetstream_domain", "hub"))
	writeContext(t, "prefix", with("jetstream_api_prefix", "$JS.hub.API"))
	for _, name := range []string{"domain", "prefix"} {
		r := jetpullRun(t, "info", "S", "c", "--context", name)
		require.Equal(t, cli.ExitDone, r.code, "%s: %s", name, r.err)
	}
	writeContext(t, "elsewhere", with("jetstream_domain", "nowhere"))
	require.Equal(t, cli.ExitError, jetpullRun(t, "info", "S", "c", "--context", "elsewhere").code, "no such domain")
	writeContext(t, "inbox", map[string]any{"url": srv.URL(), "user": "ann", "password": "pw"})
	require.NotEqual(t, cli.ExitDone, jetpullRun(t, "info", "S", "c", "--context", "inbox", "--timeout", "1s").code,
		"ann may not use the common inbox prefix")
	r := jetpullRun(t, "info", "S", "c", "--context", "prefix", "--domain", "hub")
	require.Equal(t, cli.ExitDone, r.code, "a flag goes before the context: %s", r.err)
}

func TestWhichServer(t *testing.T) {
	ownContexts(t)
	srv := servertest.RunServer(t)
	withStream(t, srv)
	run := func(args ...string) int {
		return jetpullRun(t, append([]string{"info", "S", "c", "--timeout", "2s"}, args...)...).code
	}
	const nobody = "nats://127.0.0.1:1"
	path := writeContext(t, "good", map[string]any{"url": srv.URL()})
	writeContext(t, "bad", map[string]any{"url": nobody})

	selected := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context.txt")
	require.NoError(t, os.WriteFile(selected, []byte("good\n"), 0o600))
	require.Equal(t, cli.ExitDone, run(), "the selected context")
	require.Equal(t, cli.ExitDone, run("--context", path), "a context by its file")
	require.Equal(t, cli.ExitError, run("--context", "bad"))
	t.Setenv("NATS_CONTEXT", "bad")
	require.Equal(t, cli.ExitError, run(), "NATS_CONTEXT is before the selection")
	t.Setenv("NATS_URL", srv.URL())
	require.Equal(t, cli.ExitDone, run(), "NATS_URL is before NATS_CONTEXT")
	require.Equal(t, cli.ExitError, run("--nats", nobody), "a flag is before both")
}

func TestContextRefuses(t *testing.T) {
	ownContexts(t)
	for name, tt := range map[string]struct {
		fields map[string]any
		want   string
	}{
		"socks":   {map[string]any{"socks_proxy": "socks5://127.0.0.1:1"}, `"socks_proxy"`},
		"windows": {map[string]any{"windows_cert_store": "user"}, `"windows_cert_store"`},
		"cert":    {map[string]any{"cert": "c.pem"}, `"cert" and "key"`},
		"seed":    {map[string]any{"user_seed": "SU"}, `"user_jwt"`},
	} {
		writeContext(t, name, tt.fields)
		r := jetpullRun(t, "info", "S", "c", "--context", name)
		require.Equal(t, cli.ExitUsage, r.code, name)
		require.Contains(t, r.err, tt.want)
	}
	path := writeContext(t, "broken", nil)
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	r := jetpullRun(t, "info", "S", "c", "--context", "broken")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "not as the nats command writes it")
	writeContext(t, "nokey", map[string]any{"nkey": filepath.Join(t.TempDir(), "none")})
	require.Contains(t, jetpullRun(t, "info", "S", "c", "--context", "nokey").err, "nkey")
}
