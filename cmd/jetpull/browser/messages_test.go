package test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/natsembed/embedtest"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	for _, direct := range []bool{true, false} {
		env := embedtest.StartWith(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowDirect: direct, MaxMsgSize: -1},
			jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy})
		publish(t, env.JS, "orders.new", 60)
		_, err := env.JS.PublishMsg(t.Context(), &nats.Msg{
			Subject: "orders.paid", Data: []byte(hostile[0]),
			Header: nats.Header{"X-Name": {hostile[1]}, "X-Long": {hostile[4]}},
		})
		require.NoError(t, err)
		_, err = env.JS.Publish(t.Context(), "orders.binary", []byte{0, 1, 2, 0xff, 0xfe})
		require.NoError(t, err)
		_, err = env.JS.Publish(t.Context(), "orders.large", []byte(strings.Repeat("large ", 100<<10)))
		require.NoError(t, err)
		b := openTab(t, serve(t, console.Config{NATS: console.JetStream(env.JS)}), wide)
		b.open("streams")
		b.eventually("ORDERS", "orders.>", "63", "1 stream")
		list := openTab(t, b.base, wide)
		list.open("streams")
		list.eventually("63")
		if direct {
			b.audit()
			b.shoot("streams")
		}
		b.press("stream")
		b.eventually("1 consumer", "worker", "orders.new\t60", "max_msgs_per_subject", "As JSON", `"num_replicas": 1`, "1, ", "63, ")
		if direct {
			b.audit()
			b.shoot("stream")
		}
		b.open("streams")
		b.press("ORDERS")
		b.eventually("sequences 1 to 63", "orders.paid", "<script>alert(1)</script>", "600.0 KiB")
		if direct {
			b.audit()
			b.shoot("messages")
		}
		// Both open lists show a message that is stored now.
		_, err = env.JS.Publish(t.Context(), "orders.nested", []byte(`{"lines":[{"sku":"a","price":1.50},{"sku":"b"}],"note":"<b>\u202e</b>"}`))
		require.NoError(t, err)
		b.eventually("sequences 1 to 64", "orders.nested")
		list.eventually("64")
		b.open("messages?stream=ORDERS&subject=orders.paid")
		b.eventually("61")
		b.gone("orders.new")
		b.eventually("1 message matches", "Pause")
		b.open("messages?stream=ORDERS&subject=orders.new")
		b.eventually("60 messages match", `{"order":59}`, `{"order":35}`)
		b.press("Next")
		b.eventually(`{"order":34}`, `{"order":10}`)
		b.press("Next")
		b.eventually(`{"order":9}`, `{"order":0}`)
		b.press("Previous")
		b.eventually(`{"order":34}`)
		b.press("Previous")
		b.eventually(`{"order":59}`, "Pause")
		b.open("messages?stream=ORDERS&since=2020-01-01T00:00&q=%22price%22")
		b.eventually("1 message shown; looked at 64 messages, down to the first", "orders.nested")
		b.open("messages?stream=ORDERS&until=2020-01-01T00:00")
		b.eventually("No message matches this filter.")
		b.open("messages?stream=ORDERS&since=tomorrow")
		b.eventually(`"tomorrow" is no time.`)
		b.open("message?stream=ORDERS&seq=61")
		b.eventually("orders.paid", "<script>alert(1)</script>", "X-Name", hostile[1], "(10,240 characters)")
		if direct {
			b.audit()
			b.shoot("message")
		}
		b.open("message?stream=ORDERS&seq=1")
		b.eventually("Payload as json", `"order": 0`)
		require.NotContains(t, b.text(), "Headers", "those of the direct get API are no headers of the message")
		folded := openTab(t, b.base, wide)
		folded.noScript() // a page folds without scripts
		folded.open("message?stream=ORDERS&seq=64")
		folded.eventually(`"price": 1.50`, "2 values", "<b>")
		folded.click("details details summary")
		folded.gone(`"price"`)
		folded.eventually(`"note"`)
		b.press("hex")
		b.eventually("7b 22 6f 72")
		b.open("message?stream=ORDERS&seq=62")
		b.eventually("Payload as hex", "00 01 02 ff fe")
		b.open("message?stream=ORDERS&seq=63")
		b.eventually("These are the first 65,536 bytes of 614,400 bytes")
		b.open("message?stream=ORDERS&seq=99")
		b.eventually("Not found")
		b.open("messages?stream=NONE")
		b.eventually("Not found", `There is no stream "NONE".`)

		b.open("message?stream=ORDERS&seq=1")
		b.press("Publish a copy…")
		b.eventually("gets it as a new message")
		b.press("Publish a copy")
		b.eventually("Done. Published a copy to orders.new. Stream ORDERS has it as message 65.")
		copied, err := must(env.JS.Stream(t.Context(), "ORDERS")).GetMsg(t.Context(), 65)
		require.NoError(t, err)
		require.JSONEq(t, `{"order":0}`, string(copied.Data))
		require.EqualValues(t, 65, consumerInfo(t, env.JS, "worker").NumPending, "looking takes no message from a worker")
		require.Equal(t, 1, must(env.JS.Stream(t.Context(), "ORDERS")).CachedInfo().State.Consumers, "no consumer was made to look")
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	env := embedtest.StartWith(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowDirect: true},
		jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy})
	_, err := env.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DLQ", Subjects: []string{"dlq"}, AllowDirect: true})
	require.NoError(t, err)
	publish(t, env.JS, "orders.new", 30)
	publish(t, env.JS, "orders.paid", 30)
	sub, err := jetpull.Subscribe(t.Context(), env.JS, "ORDERS", "worker")
	require.NoError(t, err)
	require.NoError(t, sub.Consume(t.Context(), func(_ context.Context, m *jetpull.Msg) error {
		return errors.New("card refused: <script>alert(1)</script> for " + m.Subject())
	}, jetpull.DeadLetter("dlq"), jetpull.MaxAttempts(1), jetpull.StopAfter(60)))
	// A dead letter that no stream takes.
	_, err = env.JS.PublishMsg(t.Context(), &nats.Msg{Subject: "dlq", Header: nats.Header{
		jetpull.HeaderDeadSubject: {"nobody.takes"}, jetpull.HeaderDeadStream: {"OTHER"}, jetpull.HeaderDeadReason: {"lost"},
	}})
	require.NoError(t, err)
	b := openTab(t, serve(t, console.Config{NATS: console.JetStream(env.JS)}), wide)
	b.open("deadletters")
	b.eventually("50 dead letters shown, newest first; 61 dead letters in stream DLQ", "card refused: <script>alert(1)</script> for orders.paid",
		"nobody.takes")
	b.audit()
	b.shoot("deadletters")
	b.press("Next")
	b.eventually("11 dead letters shown")

	b.open("overview")
	b.eventually("61 dead letters that nobody has looked at.")
	b.open("deadletters?stream=DLQ&reason=for+orders.new")
	b.eventually("30 dead letters shown")
	b.press("Requeue all that match…")
	b.eventually("That is 30 dead letters at this moment.")
	b.audit()
	b.shoot("deadletters-requeue")
	b.press("Requeue all that match")
	b.eventually("Began to requeue matching dead letters: 30 objects.", "Ended: 30 objects are done, 0 objects are skipped.")
	b.audit()
	b.shoot("operation")
	require.EqualValues(t, 90, must(env.JS.Stream(t.Context(), "ORDERS")).CachedInfo().State.Msgs)
	require.EqualValues(t, 31, must(env.JS.Stream(t.Context(), "DLQ")).CachedInfo().State.Msgs)

	// One that a stream does not take stays, and the page states why.
	b.open("deadletters?stream=DLQ&origin=OTHER")
	b.press("Requeue all that match…")
	b.press("Requeue all that match")
	b.eventually("Ended: 0 objects are done, 1 object is skipped.", "Objects that refused are skipped.", `stream "OTHER" of its origin does not exist`)

	// An operation at a rate can be cancelled, and what it has not done stays.
	b.open("deadletters?stream=DLQ&origin=ORDERS")
	b.press("Purge all that match…")
	b.typeInto("input[name=rate]", "0.5")
	b.typeInto("input[name=word]", "purge")
	b.press("Purge all that match")
	b.eventually("Running", "1 of 30")
	b.audit()
	b.shoot("operation-running")
	b.press("Cancel the operation…")
	b.press("Cancel the operation")
	b.eventually("Cancelled:", "not touched")
	require.Less(t, must(env.JS.Stream(t.Context(), "DLQ")).CachedInfo().State.Msgs, uint64(31))
	require.Greater(t, must(env.JS.Stream(t.Context(), "DLQ")).CachedInfo().State.Msgs, uint64(20))
	b.open("operations")
	b.eventually("requeue matching dead letters", "purge matching dead letters", "cancelled", "done", "3 operations")
	b.audit()
	b.shoot("operations")

	b.open("deadletters?stream=DLQ&origin=ORDERS")
	b.click("tbody tr:first-child a")
	b.eventually("card refused", "Payload as json", "Dead-Letter-Reason")
	b.audit()
	b.shoot("deadletter")
	b.press("Requeue…")
	b.eventually("These consumers get it again: ORDERS/worker.")
	b.press("Requeue")
	b.eventually("Done. Requeued: stream ORDERS has it as message 91.", "Who gets it", "waits")
	b.open(strings.TrimPrefix(b.url(), b.base))
	b.eventually("Message 91")
	require.NotContains(t, b.text(), "Done.", "an outcome is shown once")
	b.open("deadletters?stream=DLQ&origin=ORDERS")
	b.click("tbody tr:first-child a")
	b.press("Purge…")
	b.press("Purge")
	b.eventually("Done. Deleted dead letter")
	b.open("deadletters?stream=ORDERS")
	b.eventually("No dead letter matches this filter.")
}
