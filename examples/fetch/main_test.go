package main

import (
	"bytes"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
)

const want = `up to 10: 7 messages, "order 1" to "order 7"
no wait: no messages
all of 5: 5 messages, "order 8" to "order 12"
`

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	require.Equal(t, want, out.String())
}

// TestServerOfTheUsersOwn uses the server that -nats names, and checks that the example deletes its stream there.
func TestServerOfTheUsersOwn(t *testing.T) {
	srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	defer srv.Stop()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), srv.URL(), &out))
	require.Equal(t, want, out.String())

	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	account, err := js.AccountInfo(t.Context())
	require.NoError(t, err)
	require.Zero(t, account.Streams)
	require.NotZero(t, account.API.Total, "it was this server")
}
