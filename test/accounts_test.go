package test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// TestAStreamOfAnotherAccount: what an account has to import for it, and the error that names a missing part.
func TestAStreamOfAnotherAccount(t *testing.T) {
	t.Parallel()
	const accounts = `
accounts {
  OWNER {
    jetstream: enabled
    users: [{user: owner, password: pw}]
    exports: [{service: "$JS.API.>", EXPORT}, {service: "$JS.ACK.>"}]
  }
  USER {
    users: [{user: user, password: pw}]
    imports: [{service: {account: OWNER, subject: "$JS.API.>"}, to: "OWNER.API.>"}, IMPORT]
  }
}`
	const stream, acks = "response_type: stream", `{service: {account: OWNER, subject: "$JS.ACK.>"}}`
	for name, tt := range map[string]struct{ export, imports, says string }{
		"all of it":                  {stream, acks, ""},
		"no acknowledgements":        {stream, "", "$JS.ACK.>"},
		"one answer to each request": {"response_type: singleton", acks, "response_type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.NewReplacer("EXPORT", tt.export, "IMPORT", tt.imports).Replace(accounts)
			server := servertest.RunServer(t, servertest.WithConfig(text))
			owner := natstest.JetStream(t, server.Connect(t, nats.UserInfo("owner", "pw")))
			natstest.Stream(t, owner, "S", "s.>")
			natstest.Consumer(t, owner, "S", jetstream.ConsumerConfig{Durable: "C", AckWait: 2 * time.Second})
			natstest.Publish(t, owner, "s.a", 50)
			js, err := jetstream.NewWithAPIPrefix(connect(t, server.URL(), nats.UserInfo("user", "pw")), "OWNER.API")
			require.NoError(t, err)
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			var handled atomic.Int32
			problems := make(chan error, 4096)
			err = subscribe(t, js, "S", "C").Consume(ctx, func(context.Context, *jetpull.Msg) error {
				if handled.Add(1) == 50 && tt.says == "" {
					stop()
				}
				return nil
			}, jetpull.OnError(func(err error) {
				if tt.says != "" && strings.Contains(err.Error(), tt.says) {
					problems <- err
					stop()
				}
			}))
			require.NoError(t, err)
			require.Equal(t, tt.says != "", len(problems) > 0)
			require.ErrorIs(t, ctx.Err(), context.Canceled, "it was stopped by what is expected")
		})
	}
}
