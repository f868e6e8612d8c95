package servertest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

func TestServerOptions(t *testing.T) {
	s := RunServer(t, WithDomain("hub"), WithConfig(`
		server_name: "named"
		port: 1
		accounts { A { jetstream: enabled, users: [{user: a, password: pa}] } }
	`), WithOptions(func(o *server.Options) { o.MaxPayload = 4096 }))

	_, err := nats.Connect(s.URL())
	require.ErrorIs(t, err, nats.ErrAuthorization)

	nc := s.Connect(t, nats.UserInfo("a", "pa"))
	require.Equal(t, "named", nc.ConnectedServerName())
	require.EqualValues(t, 4096, nc.MaxPayload())

	js := s.JetStream(t, nc)
	natstest.Stream(t, js, "S", "in.>")
	natstest.Publish(t, js, "in.a", 3)
	c := natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "C"})
	msg, err := c.Next(jetstream.FetchMaxWait(5 * time.Second))
	require.NoError(t, err)
	require.Equal(t, "1", string(msg.Data()))
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	account, err := js.AccountInfo(ctx)
	require.NoError(t, err)
	require.Equal(t, "hub", account.Domain)
}

func TestStartServerReportsWhyItFails(t *testing.T) {
	_, err := StartServer(t.TempDir(), WithConfig(`no_such_field: 1`))
	require.ErrorContains(t, err, "no_such_field")

	s, err := StartServer(tempDir(t))
	require.NoError(t, err)
	defer s.Stop()
	_, err = StartServer(t.TempDir(), WithOptions(func(o *server.Options) {
		o.Port = s.Unwrap().Addr().(*net.TCPAddr).Port
	}))
	require.ErrorContains(t, err, "address already in use")
}
