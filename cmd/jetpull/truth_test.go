package main

import (
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// accounts has a user for each permission that can be missing, and an account without JetStream.
const accounts = `accounts {
	A { jetstream: enabled, users: [
		{user: admin, password: p}
		{user: nopull, password: p, permissions: {publish: {deny: "$JS.API.CONSUMER.MSG.NEXT.>"}}}
		{user: nopublish, password: p, permissions: {publish: {deny: ["s.>", "dead.>"]}}}
		{user: noinfo, password: p, permissions: {publish: {deny: ["$JS.API.CONSUMER.INFO.>", "$JS.API.STREAM.INFO.>", "$JS.API.STREAM.LIST", "$JS.API.CONSUMER.LIST.>"]}}}
		{user: nochange, password: p, permissions: {publish: {deny: ["$JS.API.CONSUMER.PAUSE.>", "$JS.API.CONSUMER.RESET.>", "$JS.API.CONSUMER.UNPIN.>", "$JS.API.STREAM.MSG.DELETE.>", "$JS.API.CONSUMER.CREATE.>", "$JS.API.STREAM.CREATE.>"]}}}
	] }
	B { users: [ {user: nojs, password: p} ] }
}`

// An error says what the server has refused, rather than what did not come of it.
func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t, servertest.WithConfig(accounts))
	js := natstest.JetStream(t, srv.Connect(t, nats.UserInfo("admin", "p")))
	natstest.Stream(t, js, "S", "s.>")
	natstest.Stream(t, js, "D", "dead.>")
	natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	_, err := js.Publish(t.Context(), "s.a", []byte("one"))
	require.NoError(t, err)
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.a", Header: nats.Header{"Dead-Letter-Subject": {"s.a"}, "Dead-Letter-Stream": {"S"}}})
	require.NoError(t, err)
	for _, tt := range []struct{ user, line, subject string }{
		{"nopull", "consume S c --idle 1s", "$JS.API.CONSUMER.MSG.NEXT.S.c"},
		{"nopull", "consume S c --count 5 --idle 1s", "$JS.API.CONSUMER.MSG.NEXT.S.c"},
		{"nopull", "fetch S c --no-wait", "$JS.API.CONSUMER.MSG.NEXT.S.c"},
		{"nopull", "fetch S c --wait 1s", "$JS.API.CONSUMER.MSG.NEXT.S.c"},
		{"nopull", "fetch S c --wait 1s --fill --count 2", "$JS.API.CONSUMER.MSG.NEXT.S.c"},
		{"nopublish", "publish s.a x", "s.a"},
		{"nopublish", "publish s.a x --count 3000", "s.a"},
		{"nopublish", "publish s.a x --every 1h --schedule s.schedule", "s.schedule"},
		{"nopublish", "dlq requeue D --all", "s.a"},
		{"noinfo", "consume S c --count 1", "$JS.API.CONSUMER.INFO.S.c"},
		{"noinfo", "fetch S c", "$JS.API.CONSUMER.INFO.S.c"},
		{"noinfo", "info S c", "$JS.API.CONSUMER.INFO.S.c"},
		{"noinfo", "info S c --watch", "$JS.API.CONSUMER.INFO.S.c"},
		{"noinfo", "dlq ls D", "$JS.API.STREAM.INFO.D"},
		{"nochange", "consumers reset S c", "$JS.API.CONSUMER.RESET.S.c"},
		{"nochange", "dlq purge D 1", "$JS.API.CONSUMER.CREATE.D"},
		{"nochange", "publish new.a x --create NEW", "$JS.API.STREAM.CREATE.NEW"},
		{"nochange", "consume NEW c --create new.a", "$JS.API.STREAM.CREATE.NEW"},
	} {
		r := jetpullRun(t, append(strings.Fields(tt.line), "--nats", srv.URL(), "--user", tt.user, "--password", "p")...)
		want := cli.ExitError
		if strings.HasPrefix(tt.line, "dlq requeue") {
			want = cli.ExitFailed // other dead letters may have another subject
		}
		require.Equal(t, want, r.code, "%s: %s", tt.line, r.err)
		require.Regexp(t, `(?m)^jetpull: .*the user may not .*`+strings.ReplaceAll(tt.subject, "$", `\$`), r.err, tt.line)
	}
	for _, line := range []string{
		"consume S c --count 1", "consume S c --create s.>", "fetch S c", "publish s.a x", "publish s.a x --create S", "info S c", "dlq ls D", "dlq requeue D --all",
		"consumers reset S c", "partition ls P", "publish s.a x --every 1h --schedule s.schedule",
	} {
		r := jetpullRun(t, append(strings.Fields(line), "--nats", srv.URL(), "--user", "nojs", "--password", "p")...)
		require.Equal(t, cli.ExitError, r.code, "%s: %s", line, r.err)
		require.Contains(t, r.err, "JetStream is not enabled for this account", line)
		require.NotContains(t, r.err, "--create", line)
	}
}

// silent is the address of a server that takes connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// A server that says nothing is a time-out, with its address.
func TestSilentServers(t *testing.T) {
	t.Parallel()
	at := silent(t)
	for _, line := range []string{
		"fetch S c --nats nats://u:secret@" + at, "publish a x --nats " + at, "info S c --nats nats://" + at, "dlq ls D --nats nats://" + at,
		"broker health --url http://" + at, "broker channels ls --url http://" + at, "broker backup " + t.TempDir() + "/b --url http://" + at,
		"relay receivers ls --url http://" + at,
		"relay send --source a --id 1 --receiver r {} --url http://" + at,
	} {
		r := jetpullRun(t, append(strings.Fields(line), "--timeout", "300ms")...)
		require.Equal(t, cli.ExitTimeout, r.code, "%s: %s", line, r.err)
		require.Contains(t, r.err, "no answer from ", line)
		require.Contains(t, r.err, at+" within 300ms", line)
		require.NotContains(t, r.err, "secret", line)
	}
}
