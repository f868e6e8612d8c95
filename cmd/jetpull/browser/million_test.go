package test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/client"
)

// BenchmarkMillion measures the lists of failures with 1,000,000 dead letters on a real server and 1,000,000 failed messages in a real
// relay. The relay's messages have no id, so the relay puts them on its list of failed messages.
func BenchmarkMillion(b *testing.B) {
	if testing.Short() {
		b.Skip("it stores 2,000,000 messages first")
	}
	const million = 1_000_000
	ctx := b.Context()
	server, err := natsembed.Start(ctx, natsembed.Options{Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(server.Stop)
	conn, err := server.Connect()
	require.NoError(b, err)
	b.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1000))
	require.NoError(b, err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "DLQ", Subjects: []string{"dlq.>"}, AllowDirect: true})
	require.NoError(b, err)
	cfg, err := relay.LoadConfig(relay.Sources{Flags: map[string]string{"listen": "127.0.0.1:0", "nats": server.URL(), "admin-token": "secret"}})
	require.NoError(b, err)
	node, err := relay.Start(ctx, cfg, slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	b.Cleanup(func() { _ = node.Stop(context.Background()) })

	send := func(message func(i int) *nats.Msg) {
		for i := range million {
			_, err := js.PublishMsgAsync(message(i), jetstream.WithStallWait(time.Minute))
			require.NoError(b, err)
		}
		<-js.PublishAsyncComplete()
	}
	send(func(i int) *nats.Msg {
		return &nats.Msg{Subject: "dlq.orders", Data: []byte(`{"order":1}`), Header: nats.Header{
			jetpull.HeaderDeadSubject: {"orders.new"}, jetpull.HeaderDeadStream: {"ORDERS"}, jetpull.HeaderDeadConsumer: {"worker"},
			jetpull.HeaderDeadReason: {fmt.Sprintf("reason %d", i%100)},
		}}
	})
	send(func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("relay.from_sender.shop-%02d", i%20), Data: []byte(`{"order":1}`)}
	})
	begun := time.Now()
	require.Eventually(b, func() bool { return failedMessages(ctx, js) == million }, 20*time.Minute, time.Second)
	b.Logf("the relay put them on its list in %v more", time.Since(begun).Round(time.Second))

	base := serve(b, console.Config{NATS: console.JetStream(js), Relay: client.New(node.URL(), "secret", nil)})
	for _, page := range []string{
		"overview", "consumers", "streams", "messages?stream=DLQ", "deadletters", "deadletters?reason=reason+7", "failed", "failed?source=shop-07",
		"relay", "operations",
	} {
		b.Run(page, func(b *testing.B) { measurePage(b, base+page) })
	}
}

// failedMessages is how many messages the relay's list has.
func failedMessages(ctx context.Context, js jetstream.JetStream) uint64 {
	s, err := js.Stream(ctx, "relay_failed_messages")
	if err != nil {
		return 0
	}
	return s.CachedInfo().State.Msgs
}
