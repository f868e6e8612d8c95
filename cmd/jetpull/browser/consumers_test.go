package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/natsembed/embedtest"
	"github.com/jetpull/jetpull/partition"
)

func TestConsumers(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	env := embedtest.StartWith(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowDirect: true},
		jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, Description: "Sends <script>alert(1)</script> invoices"})
	for _, name := range []string{"mail", "search", "stock"} {
		_, err := env.JS.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy,
			MaxAckPending: 10,
		})
		require.NoError(t, err)
	}
	_, err := env.JS.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{
		Durable: "ledger", AckPolicy: jetstream.AckExplicitPolicy, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"main"},
		PinnedTTL: time.Hour,
	})
	require.NoError(t, err)
	publish(t, env.JS, "orders.new", 25)
	base := serve(t, console.Config{NATS: console.JetStream(env.JS), Loopback: true})
	b := openTab(t, base, wide)

	b.open("consumers")
	b.eventually("billing", "mail", "search", "stock", "ledger", "5 consumers", "no worker")
	b.audit()
	b.shoot("consumers")

	// A live change: the page shows it without a request of the user.
	publish(t, env.JS, "orders.new", 6)
	b.eventually("31")

	// The dry run of an action on all states their number.
	b.gone("Delete all that match")
	b.open("consumers?stream=ORDERS")
	b.press("Delete all that match…")
	b.eventually("That is 5 consumers at this moment: ORDERS/billing,", "This cannot be undone.")
	b.audit()
	b.shoot("consumers-delete")
	b.press("Go back")
	b.eventually("5 consumers")

	// The filter is in the URL, and the list follows it as one types.
	b.typeInto("input[name=q]", "bil")
	b.eventually("1 consumer")
	require.Contains(t, b.url(), "q=bil")
	publish(t, env.JS, "orders.new", 2)
	b.eventually("33")

	b.open("consumer?stream=ORDERS&name=billing")
	b.eventually("No client pulls, and 33 messages wait, the oldest stored", "Sends <script>alert(1)</script> invoices", "Each message must be acknowledged within 30 s")
	b.audit()
	b.shoot("consumer")

	b.press("Pause")
	b.eventually("Done. Paused. It resumes in 59 min.", "Resume", "Paused, and resumes in 59 min; 33 messages wait")
	info := consumerInfo(t, env.JS, "billing")
	require.True(t, info.Paused)
	b.audit()
	b.shoot("consumer-paused")
	b.press("Resume")
	b.eventually("Done. Resumed.")
	require.False(t, consumerInfo(t, env.JS, "billing").Paused)

	// Reset and delete ask first, and state the numbers.
	fetched, err := must(env.JS.Consumer(t.Context(), "ORDERS", "billing")).Fetch(5)
	require.NoError(t, err)
	for m := range fetched.Messages() {
		require.NoError(t, m.DoubleAck(t.Context()))
	}
	b.eventually("No client pulls, and 28 messages wait")
	b.press("Reset…")
	b.eventually("has delivered up to sequence 5", "This cannot be undone.")
	b.audit()
	b.shoot("consumer-reset")
	b.typeInto("input[name=seq]", "1")
	b.press("Reset")
	b.eventually("Done. Reset. It begins again at sequence 1.")
	require.EqualValues(t, 33, consumerInfo(t, env.JS, "billing").NumPending)

	b.press("Delete…")
	b.eventually("Delete consumer billing of stream ORDERS. 33 messages are not delivered")
	b.press("Delete")
	b.eventually("Deleted consumer billing of stream ORDERS.", "4 consumers")
	_, err = env.JS.Consumer(t.Context(), "ORDERS", "billing")
	require.ErrorIs(t, err, jetstream.ErrConsumerNotFound)

	b.open("consumer?stream=ORDERS&name=billing")
	b.eventually("Not found", `There is no consumer "billing" on a stream "ORDERS".`)
	b.audit()

	b.open("log")
	b.eventually("4 actions", "Pause", "Resume", "Reset", "Delete", "ORDERS/billing")
	b.audit()
	b.shoot("log")
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	env := embedtest.StartWith(t, jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*"}, SubjectTransform: &jetstream.SubjectTransformConfig{
			Source:      "orders.*",
			Destination: "orders.{{partition(4,1)}}.{{wildcard(1)}}",
		},
	}, jetstream.ConsumerConfig{Durable: "other"})
	set, err := partition.Open(t.Context(), env.JS, "ORDERS", partition.Config{Name: "billing", Partitions: 4, Subject: "orders.{partition}.*"})
	require.NoError(t, err)
	for i := range 20 {
		publish(t, env.JS, fmt.Sprintf("orders.%d", i), 1)
	}
	created, err := env.JS.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.CREATED.>")
	require.NoError(t, err)
	b := openTab(t, serve(t, console.Config{NATS: console.JetStream(env.JS)}), wide)
	b.open("sets")
	b.eventually("billing", "orders.{partition}.*", "no member", "20", "1 set")
	b.audit()
	b.press("billing")
	b.eventually("No member works on the partitions, and 20 messages wait.", "4 partitions")
	require.NoError(t, env.JS.Conn().Flush())
	_, err = created.NextMsg(time.Nanosecond)
	require.ErrorIs(t, err, nats.ErrTimeout, "no consumer was made to look")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- set.Consume(ctx, func(context.Context, *jetpull.Msg) error { return nil }, partition.Member("alice"))
	}()
	b.eventually("Each partition has an owner; none waits.", "alice")
	b.audit()
	b.shoot("set")
	stop()
	require.NoError(t, <-done)
	b.open("set?name=none")
	b.eventually("Not found", `There is no set "none".`)
}

func TestUnpin(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	env := embedtest.StartWith(t, jetstream.StreamConfig{Subjects: []string{"a"}}, jetstream.ConsumerConfig{
		Durable: "ledger", AckPolicy: jetstream.AckExplicitPolicy, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"main"},
		PinnedTTL: time.Hour,
	})
	publish(t, env.JS, "a", 3)
	sub, err := jetpull.Subscribe(t.Context(), env.JS, env.Stream, env.Consumer, jetpull.Group("main"))
	require.NoError(t, err)
	_, err = sub.Next(t.Context())
	require.NoError(t, err)
	pin, ok := sub.Pin()
	require.True(t, ok)
	b := openTab(t, serve(t, console.Config{NATS: console.JetStream(env.JS)}), narrow)
	b.open("consumer?stream=STREAM&name=ledger")
	b.eventually(pin, "Pinned since")
	b.shoot("group")
	b.press("Unpin")
	b.eventually("Done. Unpinned client " + pin)
	require.Empty(t, consumerInfo(t, env.JS, "ledger").PriorityGroups[0].PinnedClientID)
	b.audit()
}

func publish(t *testing.T, js jetstream.JetStream, subject string, n int) {
	t.Helper()
	for i := range n {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: fmt.Appendf(nil, `{"order":%d}`, i)})
		require.NoError(t, err)
	}
}

func consumerInfo(t *testing.T, js jetstream.JetStream, name string) *jetstream.ConsumerInfo {
	t.Helper()
	streams := js.StreamNames(t.Context())
	for stream := range streams.Name() {
		if c, err := js.Consumer(t.Context(), stream, name); err == nil {
			info, err := c.Info(context.Background())
			require.NoError(t, err)
			return info
		}
	}
	t.Fatalf("no stream has a consumer %s", name)
	return nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
